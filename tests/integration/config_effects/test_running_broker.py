"""Broker keys changed while the broker runs, with connections and topics that exist; then after a
restart."""

import asyncio
import contextlib
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry
from confluent_kafka.admin import ConfigResource as AdminResource

from headrace.client import Client, TopicPartition
from headrace.core.broker_configs import BROKER_KEYS
from headrace.core.config_keys import Update
from headrace.core.errors import ApiError
from headrace.core.topic_configs import TOPIC_KEYS
from headrace.testing import Broker
from tests.support.config_effects import (
    alter_brokers,
    effect_of,
    eventually,
    publish,
    shown_in,
    stored_keys,
)

# Keys whose test elsewhere changes them on a running broker: test_broker_keys and
# test_logging_keys.
SHOWN_ELSEWHERE = {
    "log.cleaner.dedupe.buffer.size",
    "producer.id.expiration.ms",
    "request.log.slow.ms",
}


async def served(broker: Broker, count: int) -> tuple[int, list[asyncio.StreamWriter]]:
    """How many of so many connections, opened one by one, are not closed at once."""
    writers = []
    open_ones = 0
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        # ApiVersions v0: who is served is answered, who is refused reads the end.
        writer.write(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))
        writers.append(writer)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionResetError):
                open_ones += await reader.read(4) != b""
    return open_ones, writers


@effect_of("max.connections", "max.connections.per.ip")
@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
async def test_a_limit_of_connections_holds_for_new_ones_and_after_a_restart(name: str) -> None:
    async with Broker() as broker:
        held, before = await served(broker, 4)
        assert held == 4
        await asyncio.to_thread(alter_brokers, broker, {name: "6"})
        more, after = await served(broker, 5)
        # The connection of whoever changed the key may not be counted out yet.
        assert more in (1, 2)
        assert not any(writer.is_closing() for writer in before), "open ones stay"
        for writer in (*before, *after):
            writer.close()
        await asyncio.to_thread(broker.restart)
        restarted, writers = await served(broker, 9)
        assert restarted == 6
        for writer in writers:
            writer.close()


@effect_of("log.cleaner.backoff.ms")
def test_a_shorter_pause_of_the_cleaner_holds_for_the_pause_under_way() -> None:
    settings = {
        "log.cleaner.backoff.ms": "3600000",
        "log.flush.offset.checkpoint.interval.ms": "20",
    }
    configs = {
        "cleanup.policy": "compact",
        "internal.segment.bytes": "200",
        "min.cleanable.dirty.ratio": "0.01",
    }
    with Broker(settings=settings) as broker:
        topic = broker.create_topic("compacted", configs=configs)
        publish(broker, topic, [b"x"] * 8, keys=[b"k"] * 8)
        alter_brokers(broker, {"log.cleaner.backoff.ms": "20"})
        eventually(lambda: len(stored_keys(broker, topic)) < 8, "compacted at once")


def test_a_cluster_wide_key_is_set_with_confluent_kafka_by_naming_the_broker() -> None:
    """As docs/configuration.md says; the empty name is refused by that client itself."""
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        entry = ConfigEntry(
            "message.max.bytes", "1000", incremental_operation=AlterConfigOpType.SET
        )
        wanted = AdminResource("broker", "0", incremental_configs=[entry])
        for done in admin.incremental_alter_configs([wanted]).values():
            done.result(20)
        topic = broker.create_topic("limited")
        with pytest.raises(ApiError):
            publish(broker, topic, [bytes(2000)])
        unnamed = AdminResource("broker", "", incremental_configs=[entry])
        with pytest.raises(ValueError, match="Invalid ConfigResource"):
            admin.incremental_alter_configs([unnamed])


@effect_of("metrics.internal.topics")
def test_internal_topics_are_in_the_metrics_only_when_asked_for() -> None:
    with Broker(http=True) as broker:
        topic = broker.create_topic("mine")
        publish(broker, topic, [b"x"])
        with Client(broker.bootstrap_servers) as client:
            client.admin.alter_offsets("g", {TopicPartition(topic, 0): 1})

        def told() -> str:
            with urlopen(f"{broker.http_url}/metrics") as answer:
                text: str = answer.read().decode()
            return text

        assert 'topic="mine"' in told()
        assert "__consumer_offsets" not in told()
        alter_brokers(broker, {"metrics.internal.topics": "true"})
        assert 'topic="__consumer_offsets"' in told()
        broker.restart()
        assert 'topic="__consumer_offsets"' in told()


def test_every_dynamic_key_is_changed_on_a_running_broker() -> None:
    """Those that topics inherit are by `test_a_topic_without_a_value_of_its_own_takes_the_brokers`
    and the tests of the topic keys themselves."""
    import tests.integration.config_effects.test_running_broker as here

    inherited = {synonym.name for known in TOPIC_KEYS.values() for synonym in known.synonyms}
    dynamic = {name for name, known in BROKER_KEYS.items() if known.update is not Update.READ_ONLY}
    assert dynamic - inherited == shown_in(here) | SHOWN_ELSEWHERE
