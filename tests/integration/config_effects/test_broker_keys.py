"""Broker keys: what each of them changes, at start or while the broker runs."""

import asyncio
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.client import Client, ClientSettings, NewTopic, ProducerSettings, TopicPartition
from headrace.core.broker_configs import BROKER_KEYS
from headrace.core.config_keys import ConfigKey, ConfigType, Synonym, Update
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.topic_configs import TOPIC_KEYS
from headrace.log.compaction.request import CompactionRequest, CompactionResult
from headrace.log.compaction.runner import InlineCompactor
from headrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headrace.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.testing import Broker
from headrace.testing.unsynced_files import UnsyncedFile
from tests.support.batches import Batch, record
from tests.support.config_effects import (
    BUSY,
    alter_brokers,
    config_value,
    effect_of,
    eventually,
    partition_files,
    publish,
    start_offset,
    stored_keys,
)
from tests.support.raw_client import RawClient

SYNONYMS = [
    (topic_key, synonym) for topic_key in TOPIC_KEYS.values() for synonym in topic_key.synonyms
]


EAGER = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "100",
    "min.cleanable.dirty.ratio": "0.01",
}


def code_of(broker: Broker, call: Callable[[Client], object]) -> ErrorCode:
    with Client(broker.bootstrap_servers) as client, pytest.raises(ApiError) as refused:
        call(client)
    return refused.value.code


def other_value(known: ConfigKey) -> str:
    """A value that is not the default and that every key of its type takes."""
    match known.type:
        case ConfigType.BOOLEAN:
            return "false" if known.default else "true"
        case ConfigType.DOUBLE:
            return "0.25"
        case ConfigType.STRING:
            return {"compression.type": "zstd"}.get(known.name, "LogAppendTime")
        case ConfigType.LIST:
            return "compact"
        case _:
            return "7" if "level" in known.name else "2000000"


@effect_of(*(synonym.name for _, synonym in SYNONYMS))
@pytest.mark.parametrize(("topic_key", "synonym"), SYNONYMS, ids=lambda each: each.name)
def test_a_topic_without_a_value_of_its_own_takes_the_brokers(
    topic_key: ConfigKey, synonym: Synonym
) -> None:
    broker_key = BROKER_KEYS[synonym.name]
    text = "2" if synonym.factor > 1 else other_value(broker_key)
    expected = str(2 * synonym.factor) if synonym.factor > 1 else text
    settings = {synonym.name: text}
    with Broker(settings=settings) as broker:
        topic = broker.create_topic("inherits")
        assert config_value(broker, topic, topic_key.name) == expected
        if broker_key.update is not Update.READ_ONLY:
            default = "1048600" if text == "2000000" else text
            alter_brokers(broker, {synonym.name: default})
            assert config_value(broker, topic, topic_key.name) == default


def test_a_dynamic_limit_holds_at_once_and_for_topics_that_exist() -> None:
    with Broker() as broker:
        topic = broker.create_topic("limited")
        publish(broker, topic, [bytes(2000)])
        alter_brokers(broker, {"message.max.bytes": "1000"})
        with pytest.raises(ApiError) as refused:
            publish(broker, topic, [bytes(2000)])
        assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE


@effect_of("node.id", "broker.rack")
def test_a_broker_tells_its_number_and_rack() -> None:
    settings = {"node.id": "7", "broker.rack": "r2"}
    with Broker(settings=settings) as broker, Client(broker.bootstrap_servers) as client:
        (told,) = client.admin.describe_cluster().brokers
    assert (told.node_id, told.rack) == (7, "r2")


@effect_of("listeners", "advertised.listeners", "listener.security.protocol.map")
def test_clients_are_told_the_advertised_address_of_the_listener_they_use() -> None:
    """See also test_serve, where one broker has several listeners."""
    settings = {
        "advertised.listeners": "PLAINTEXT://localhost:1234",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    }
    with Broker(settings=settings) as broker, Client(broker.bootstrap_servers) as client:
        (told,) = client.admin.describe_cluster().brokers
    assert (told.host, told.port) == ("localhost", 1234)


@effect_of("log.dirs", "log.dir")
def test_data_lies_where_it_was_asked_for(tmp_path: Path) -> None:
    """`Broker` sets log.dirs; that log.dir stands in for it is a matter of the config room."""
    with Broker(data_dir=tmp_path / "here") as broker:
        broker.create_topic("placed")
    assert (tmp_path / "here" / "meta.properties").exists()


@effect_of("num.partitions", "auto.create.topics.enable")
def test_a_topic_made_by_asking_has_the_default_number_of_partitions() -> None:
    with Broker(settings={"num.partitions": "4"}) as broker:
        publish(broker, "asked-for", [b"x"])
        with Client(broker.bootstrap_servers) as client:
            described = client.admin.describe_topics(["asked-for"])["asked-for"]
        assert len(described.partitions) == 4


@effect_of("auto.create.topics.enable")
def test_topics_are_not_made_by_asking_when_that_is_off() -> None:
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        impatient = ClientSettings(broker.bootstrap_servers, call_timeout_ms=300)
        with Client(impatient) as client, client.producer() as producer:
            with pytest.raises(HeadraceError):
                producer.send_and_wait("asked-for", b"x")
            assert client.admin.list_topics() == []


@effect_of("default.replication.factor")
def test_the_default_replication_factor_is_asked_for() -> None:
    with Broker(settings={"default.replication.factor": "3"}) as broker:
        code = code_of(broker, lambda client: client.admin.create_topics([NewTopic("three")]))
        assert code is ErrorCode.INVALID_REPLICATION_FACTOR
        assert broker.create_topic("one") == "one"


@effect_of("delete.topic.enable")
def test_topics_cannot_be_deleted_when_that_is_off() -> None:
    with Broker(settings={"delete.topic.enable": "false"}) as broker:
        topic = broker.create_topic("stays")
        code = code_of(broker, lambda client: client.admin.delete_topics([topic]))
        assert code is ErrorCode.TOPIC_DELETION_DISABLED


async def is_closed(reader: asyncio.StreamReader) -> bool:
    async with asyncio.timeout(20):
        try:
            return await reader.read(1) == b""
        except ConnectionResetError:
            return True


@effect_of("socket.request.max.bytes")
async def test_a_request_above_the_limit_closes_its_connection_only() -> None:
    async with Broker(settings={"socket.request.max.bytes": "1000"}) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        bystander, other = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write((1001).to_bytes(4, "big"))
        assert await is_closed(reader)
        assert not bystander.at_eof()
        writer.close()
        other.close()


@effect_of("connections.max.idle.ms")
async def test_a_silent_connection_is_closed() -> None:
    async with Broker(settings={"connections.max.idle.ms": "100"}) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        assert await is_closed(reader)
        writer.close()


@effect_of("max.connections", "max.connections.per.ip")
@pytest.mark.parametrize("name", ["max.connections", "max.connections.per.ip"])
async def test_connections_above_the_limit_are_closed(name: str) -> None:
    async with Broker(settings={name: "2"}) as broker:
        held = [await asyncio.open_connection("127.0.0.1", broker.port) for _ in range(2)]
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        assert await is_closed(reader)
        assert not any(first.at_eof() for first, _ in held)
        for each in (writer, *(held_writer for _, held_writer in held)):
            each.close()


@effect_of("socket.listen.backlog.size")
def test_the_backlog_bounds_connections_that_nobody_accepts() -> None:
    with Broker(settings={"socket.listen.backlog.size": "2"}) as broker:
        broker.pause()
        waiting = []
        for _ in range(10):
            attempt = socket.socket()
            attempt.settimeout(0.3)
            waiting.append(attempt)
            if attempt.connect_ex(("127.0.0.1", broker.port)):
                break
        broker.resume()
        for attempt in waiting:
            attempt.close()
    assert len(waiting) < 10


async def fetched(broker: Broker, topic: str, epoch: int = -1) -> FetchResponse:
    everything = 100_000_000
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=everything)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=everything,
        session_epoch=epoch,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    async with RawClient("127.0.0.1", broker.port) as raw:
        answer = await raw.call(request, 11)
    assert isinstance(answer, FetchResponse)
    return answer


@effect_of("fetch.max.bytes")
async def test_a_fetch_answer_is_bounded_by_the_broker() -> None:
    async with Broker(settings={"fetch.max.bytes": "1024"}) as broker:
        topic = await asyncio.to_thread(broker.create_topic, "bounded")
        await asyncio.to_thread(publish, broker, topic, [bytes(400)] * 10)
        answer = await fetched(broker, topic)
    records = answer.responses[0].partitions[0].records
    assert records is not None
    assert 400 < len(records) <= 1024


@effect_of("max.incremental.fetch.session.cache.slots")
@pytest.mark.parametrize(("slots", "kept"), [("0", False), ("10", True)])
async def test_fetch_sessions_are_kept_while_there_is_room(slots: str, kept: bool) -> None:
    settings = {"max.incremental.fetch.session.cache.slots": slots}
    async with Broker(settings=settings) as broker:
        topic = await asyncio.to_thread(broker.create_topic, "session")
        answer = await fetched(broker, topic, epoch=0)
    assert (answer.session_id != 0) is kept


@effect_of("max.request.partition.size.limit")
async def test_a_description_names_so_many_partitions_at_most() -> None:
    async with Broker(settings={"max.request.partition.size.limit": "2"}) as broker:
        topic = await asyncio.to_thread(broker.create_topic, "wide", partitions=5)
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic)], response_partition_limit=100
        )
        async with RawClient("127.0.0.1", broker.port) as raw:
            answer = await raw.call(request, 0)
    assert isinstance(answer, DescribeTopicPartitionsResponse)
    assert [each.partition_index for each in answer.topics[0].partitions] == [0, 1]
    assert answer.next_cursor is not None


@effect_of("log.validate.records")
@pytest.mark.parametrize(("validate", "code"), [("false", 0), ("true", 87)])
async def test_records_are_looked_at_when_asked_for(validate: str, code: int) -> None:
    """The second record claims the first one's place: the header cannot show it."""
    twice = record(0, b"k", b"v") + record(0, b"k", b"v")
    bad = Batch(values=[(b"k", b"v")] * 2, records=twice).encode()
    async with Broker(settings={"log.validate.records": validate}) as broker:
        topic = await asyncio.to_thread(broker.create_topic, "validated")
        data = [PartitionProduceData(index=0, records=bad)]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        async with RawClient("127.0.0.1", broker.port) as raw:
            answer = await raw.call(ProduceRequest(acks=1, timeout_ms=9, topic_data=topics), 9)
    assert isinstance(answer, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == code


@effect_of("producer.id.expiration.ms")
def test_a_silent_producer_is_forgotten() -> None:
    def producers(broker: Broker, topic: str) -> int:
        partition = TopicPartition(topic, 0)
        with Client(broker.bootstrap_servers) as client:
            return len(client.admin.describe_producers([partition])[partition])

    settings = {"log.retention.check.interval.ms": "20"}
    with Broker(settings=settings) as broker:
        topic = broker.create_topic("remembered")
        publish(broker, topic, [b"x"], settings=ProducerSettings(idempotence=True))
        assert producers(broker, topic) == 1
        alter_brokers(broker, {"producer.id.expiration.ms": "1"})
        eventually(lambda: producers(broker, topic) == 0, "the producer is forgotten")


@effect_of("log.flush.policy")
@pytest.mark.parametrize(("policy", "flushed"), [("os", False), ("fsync", True)])
def test_acks_all_waits_for_the_disk_only_under_fsync(
    policy: str, flushed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[str] = set()
    monkeypatch.setattr(UnsyncedFile, "sync", lambda file: synced.add(Path(file.path).parent.name))
    with Broker(settings={"log.flush.policy": policy}) as broker:
        topic = broker.create_topic("flushed")
        publish(broker, topic, [b"x"])
        assert ("flushed-0" in synced) is flushed


@effect_of("log.flush.offset.checkpoint.interval.ms")
def test_recovery_points_are_written_down_as_often_as_asked() -> None:
    settings = {"log.flush.offset.checkpoint.interval.ms": "20", "log.flush.policy": "fsync"}
    with Broker(settings=settings) as broker:
        topic = broker.create_topic("pointed")
        checkpoint = Path(broker.data_dir, "recovery-point-offset-checkpoint")
        publish(broker, topic, [b"x"] * 3)
        eventually(
            lambda: checkpoint.exists() and f"{topic} 0 3" in checkpoint.read_text(),
            "the recovery point is written down",
        )


@effect_of("replica.high.watermark.checkpoint.interval.ms")
def test_high_watermarks_are_written_down_as_often_as_asked() -> None:
    with Broker(settings={"replica.high.watermark.checkpoint.interval.ms": "20"}) as broker:
        topic = broker.create_topic("committed")
        checkpoint = Path(broker.data_dir, "replication-offset-checkpoint")
        publish(broker, topic, [b"x"] * 3)
        eventually(
            lambda: checkpoint.exists() and f"{topic} 0 3" in checkpoint.read_text(),
            "the high watermark is written down",
        )


@effect_of("log.retention.check.interval.ms")
def test_retention_waits_for_its_next_check() -> None:
    long_ago = int(time.time() * 1000) - 3_600_000
    configs = {"internal.segment.bytes": "100", "retention.ms": "60000"}
    starts = {}
    with (
        Broker(settings={"log.retention.check.interval.ms": "20"}) as often,
        Broker(settings={"log.retention.check.interval.ms": "3600000"}) as seldom,
    ):
        for broker in (seldom, often):
            topic = broker.create_topic("checked", configs=configs)
            publish(broker, topic, [b"x"] * 3, timestamps_ms=[long_ago] * 3)
        eventually(lambda: start_offset(often, "checked") > 0, "the check comes round")
        starts = {broker.port: start_offset(broker, "checked") for broker in (seldom, often)}
        assert starts[seldom.port] == 0


@effect_of("log.cleaner.backoff.ms")
def test_compaction_waits_for_its_next_round() -> None:
    with (
        Broker(settings=BUSY) as often,
        Broker(settings={**BUSY, "log.cleaner.backoff.ms": "3600000"}) as seldom,
    ):
        for broker in (seldom, often):
            topic = broker.create_topic("cleaned", configs=EAGER)
            publish(broker, topic, [b"x"] * 5, keys=[b"k"] * 5)
        eventually(lambda: len(stored_keys(often, "cleaned")) <= 2, "the round comes")
        assert len(stored_keys(seldom, "cleaned")) == 5


@effect_of("log.cleaner.dedupe.buffer.size")
def test_the_compactor_is_told_how_much_memory_it_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it does with less than it needs is shown in the tests of its map of keys."""
    told: set[int] = set()
    really = InlineCompactor.compact

    def compact(process: InlineCompactor, request: CompactionRequest) -> CompactionResult:
        told.add(request.memory_bytes)
        return really(process, request)

    monkeypatch.setattr(InlineCompactor, "compact", compact)
    with Broker(settings={**BUSY, "log.cleaner.dedupe.buffer.size": "1234567"}) as broker:
        topic = broker.create_topic("cleaned", configs=EAGER)
        publish(broker, topic, [b"x"] * 3, keys=[b"k"] * 3)
        eventually(lambda: told == {1234567}, "a round of compaction")


def test_partition_files_are_where_the_other_tests_look() -> None:
    with Broker() as broker:
        topic = broker.create_topic("seen")
        publish(broker, topic, [b"x"])
        assert len(partition_files(broker, topic, ".log")) == 1
