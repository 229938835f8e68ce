"""Idempotency keys: a repeated request is answered as the first one was."""

import asyncio
from pathlib import Path

import pytest

from headrace.client import (
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
)
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.gateway import (
    Gateway,
    GatewayLimits,
    IdempotencyKeyReused,
    KeyLifetimeTooLong,
    OutRecord,
    TooManyKeys,
    TooManyRecords,
)
from headrace.network.send_request import SendRequest
from headrace.node.system import RealClock
from headrace.protocol.messages.fetch import FetchRequest
from tests.support.brokers import HeadraceProcess
from tests.support.gateways import FORMS, gateway_of, local_gateway, remote_gateway
from tests.support.nodes import running_node

RECORDS = [OutRecord(b"%d" % number) for number in range(10)]


async def count(gateway: Gateway, topic: str, partitions: int = 1) -> int:
    found = [len((await gateway.read(topic, number)).records) for number in range(partitions)]
    return sum(found)


async def test_a_repeated_request_gets_the_first_ones_offsets(gateway: Gateway) -> None:
    await gateway.admin.create_topics([NewTopic("orders", 3)])
    await gateway.produce("orders", RECORDS[:4])
    first = await gateway.produce("orders", RECORDS, key="k")
    await gateway.produce("orders", RECORDS)
    assert await gateway.produce("orders", RECORDS, key="k") == first
    assert await count(gateway, "orders", 3) == 24


@pytest.mark.parametrize("hours", [2, -2])
async def test_a_repetition_is_answered_whatever_became_of_the_clock(
    tmp_path: Path, hours: int
) -> None:
    """The repeated batches carry the time of the first run, which the topic may refuse by now."""

    class SetClock(RealClock):
        ahead_ms = 0

        def now_ms(self) -> int:
            return super().now_ms() + self.ahead_ms

    clock = SetClock()
    async with running_node(tmp_path, clock=clock) as node, local_gateway(node) as gateway:
        configs = {"message.timestamp.before.max.ms": "3600000"}
        await gateway.admin.create_topics([NewTopic("orders", configs=configs)])
        first = await gateway.produce("orders", RECORDS, key="k")
        assert first[0].error is None
        clock.ahead_ms = hours * 3_600_000
        assert await gateway.produce("orders", RECORDS, key="k") == first
        assert await count(gateway, "orders") == 10


async def test_the_topic_of_the_keys_is_the_clusters_own(gateway: Gateway) -> None:
    await gateway.produce("orders", RECORDS, key="k")
    assert [topic.name for topic in await gateway.admin.list_topics()] == ["orders"]


async def test_requests_with_the_same_key_at_once_are_written_once(gateway: Gateway) -> None:
    await gateway.admin.create_topics([NewTopic("orders", 2)])
    answers = await asyncio.gather(*(gateway.produce("orders", RECORDS, key="k") for _ in range(8)))
    assert all(answer == answers[0] for answer in answers)
    assert await count(gateway, "orders", 2) == 10


async def test_other_records_under_the_same_key_are_refused(gateway: Gateway) -> None:
    await gateway.produce("orders", RECORDS, key="k")
    for other in (
        RECORDS[:-1],
        [*RECORDS[:-1], OutRecord(b"x")],
        [OutRecord(record.value, b"key") for record in RECORDS],
        [OutRecord(record.value, None, 0) for record in RECORDS],
        [OutRecord(record.value, headers=[("h", None)]) for record in RECORDS],
    ):
        with pytest.raises(IdempotencyKeyReused):
            await gateway.produce("orders", other, key="k")
    assert await count(gateway, "orders") == 10


async def test_a_key_counts_for_its_topic(gateway: Gateway) -> None:
    for topic in ("orders", "bills"):
        done = await gateway.produce(topic, RECORDS, key="k")
        assert [each.offset for each in done] == list(range(10))


async def test_a_key_remembers_where_records_went_when_partitions_are_added(
    gateway: Gateway,
) -> None:
    await gateway.admin.create_topics([NewTopic("orders", 2)])
    keyed = [OutRecord(b"v", b"key-%d" % number) for number in range(20)]
    first = await gateway.produce("orders", keyed, key="k")
    await gateway.admin.create_partitions({"orders": 7})
    assert await gateway.partitions("orders") == 7
    assert await gateway.produce("orders", keyed, key="k") == first


async def test_large_requests_are_repeated_batch_by_batch(gateway: Gateway) -> None:
    configs = {"max.message.bytes": "3000"}
    await gateway.admin.create_topics([NewTopic("small", 1, configs=configs)])
    large = [OutRecord(b"%d" % number * 600) for number in range(10)]
    first = await gateway.produce("small", large, key="k")
    assert [each.offset for each in first] == list(range(10))
    assert await gateway.produce("small", large, key="k") == first
    assert await count(gateway, "small") == 10


@pytest.mark.parametrize("form", FORMS)
async def test_more_than_brokers_remember_is_refused(form: str, tmp_path: Path) -> None:
    async with gateway_of(form, tmp_path, limits=GatewayLimits(batch_bytes=1000)) as gateway:
        with pytest.raises(TooManyRecords):
            await gateway.produce("orders", [OutRecord(b"x" * 900)] * 6, key="k")
        assert (await gateway.read("orders", 0)).records == []


@pytest.mark.parametrize("key", ["", "x" * 256])
async def test_a_key_is_neither_empty_nor_long(gateway: Gateway, key: str) -> None:
    with pytest.raises(HeadraceError) as refused:
        await gateway.produce("orders", RECORDS, key=key)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


async def test_a_key_needs_acks_of_all(gateway: Gateway) -> None:
    with pytest.raises(HeadraceError, match="acks=all"):
        await gateway.produce("orders", RECORDS, acks=1, key="k")


@pytest.mark.parametrize("form", FORMS)
async def test_a_key_is_forgotten_after_its_lifetime(form: str, tmp_path: Path) -> None:
    async with gateway_of(form, tmp_path, limits=GatewayLimits(key_lifetime_ms=0)) as gateway:
        first = await gateway.produce("orders", RECORDS, key="k")
        second = await gateway.produce("orders", RECORDS[:3], key="k")
    assert (first[0].offset, second[0].offset) == (0, 10)


async def test_two_gateways_agree_on_a_key(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data")
    broker.start()
    try:
        async with (
            remote_gateway(broker.bootstrap_servers) as one,
            remote_gateway(broker.bootstrap_servers) as two,
        ):
            await one.admin.create_topics([NewTopic("orders", 2)])
            # So that their turns differ: what was claimed counts, not what each would choose.
            await one.produce("orders", RECORDS[:1])
            for key in ("a", "b", "c"):
                answers = await asyncio.gather(
                    *(each.produce("orders", RECORDS, key=key) for each in (one, two, one, two))
                )
                assert all(answer == answers[0] for answer in answers)
            assert await count(one, "orders", 2) == 31
    finally:
        broker.stop()


@pytest.mark.parametrize("form", FORMS)
async def test_no_key_is_forgotten_to_make_room_for_others(form: str, tmp_path: Path) -> None:
    async with gateway_of(form, tmp_path, limits=GatewayLimits(keys_max=30)) as gateway:
        first = await gateway.produce("orders", RECORDS, key="payment 17")
        await asyncio.gather(
            *(gateway.produce("orders", RECORDS[:1], key=f"k{number}") for number in range(29))
        )
        with pytest.raises(TooManyKeys) as refused:
            await gateway.produce("orders", RECORDS[:1], key="one too many")
        assert refused.value.retriable
        assert await gateway.produce("orders", RECORDS, key="payment 17") == first
        assert await gateway.produce("orders", RECORDS[:1], key="k28")
        assert await count(gateway, "orders") == 39


async def test_keys_at_once_do_not_pass_the_limit_together(tmp_path: Path) -> None:
    async with gateway_of("local", tmp_path, limits=GatewayLimits(keys_max=5)) as gateway:
        await gateway.produce("orders", RECORDS[:1])
        done = await asyncio.gather(
            *(gateway.produce("orders", RECORDS[:1], key=f"k{number}") for number in range(20)),
            return_exceptions=True,
        )
        assert sum(isinstance(each, TooManyKeys) for each in done) == 15
        assert await count(gateway, "orders") == 6


async def test_a_key_counts_once_for_each_partition_it_writes_to(tmp_path: Path) -> None:
    async with gateway_of("local", tmp_path, limits=GatewayLimits(keys_max=5)) as gateway:
        await gateway.admin.create_topics([NewTopic("orders", 4)])
        await gateway.produce("orders", RECORDS, key="in all four")
        with pytest.raises(TooManyKeys):
            await gateway.produce("orders", RECORDS, key="in all four again")
        await gateway.produce("orders", RECORDS[:1], key="in one")
        with pytest.raises(TooManyKeys):
            await gateway.produce("orders", RECORDS[:1], key="in another")


async def test_keys_that_have_expired_make_room(tmp_path: Path) -> None:
    limits = GatewayLimits(keys_max=5, key_lifetime_ms=0)
    async with gateway_of("local", tmp_path, limits=limits) as gateway:
        for number in range(20):
            await gateway.produce("orders", RECORDS[:1], key=f"k{number}")
        assert await count(gateway, "orders") == 20


async def test_after_a_restart_keys_are_known_and_expired_ones_are_not_read(tmp_path: Path) -> None:
    lifetime_ms = 20
    async with running_node(tmp_path) as node:
        async with local_gateway(node) as one:
            for number in range(10):
                done = await one.produce("orders", RECORDS[:1], key=f"k{number}")
            claimed_ms = one.client.clock.now_ms()
        async with local_gateway(node) as two:
            assert await two.produce("orders", RECORDS[:1], key="k9") == done
            assert await count(two, "orders") == 10
        short = GatewayLimits(key_lifetime_ms=lifetime_ms)
        async with local_gateway(node, short) as three:
            async with asyncio.timeout(20):
                while three.client.clock.now_ms() <= claimed_ms + 2 * lifetime_ms:
                    await asyncio.sleep(0)
            fetched: list[int] = []
            submit = three.client.requests.submit

            def watched(ask: SendRequest) -> object:
                if isinstance(ask.request, FetchRequest):
                    fetched.append(ask.request.topics[0].partitions[0].fetch_offset)
                return submit(ask)

            three.client.requests.submit = watched  # type: ignore[assignment]  # a spy
            await three.produce("orders", RECORDS[:1], key="k0")
            assert min(fetched) == 10
            assert await count(three, "orders") == 11


async def test_a_topic_that_takes_only_small_batches_gets_all_of_a_key_or_nothing(
    gateway: Gateway,
) -> None:
    configs = {"max.message.bytes": "2000"}
    await gateway.admin.create_topics([NewTopic("small", 1, configs=configs)])
    large = [OutRecord(b"x" * 700) for _ in range(16)]
    for _ in range(3):
        done = await gateway.produce("small", large, key="k")
        assert all(isinstance(each.error, TooManyRecords) for each in done)
    assert await count(gateway, "small") == 0
    first = await gateway.produce("small", large[:8], key="fewer")
    assert [each.offset for each in first] == list(range(8))
    assert await gateway.produce("small", large[:8], key="fewer") == first


@pytest.mark.parametrize(("large", "written"), [(8, 16), (10, 0)])
async def test_uneven_records_are_cut_so_that_all_or_none_are_written(
    gateway: Gateway, large: int, written: int
) -> None:
    """Small ones first: when the large ones turn out to need too many batches it is too late."""
    configs = {"max.message.bytes": "2000"}
    await gateway.admin.create_topics([NewTopic("small", 1, configs=configs)])
    uneven = [OutRecord(b"x" * size) for size in [10] * large + [900] * large]
    answers = [await gateway.produce("small", uneven, key="k") for _ in range(3)]
    told = [[(each.offset, type(each.error)) for each in answer] for answer in answers]
    assert told[0] == told[1] == told[2]
    assert sum(each.error is None for each in answers[0]) == written
    assert await count(gateway, "small") == written


async def test_a_key_is_answered_the_same_after_the_topics_limit_was_raised(
    gateway: Gateway,
) -> None:
    await gateway.admin.create_topics([NewTopic("small", 1, configs={"max.message.bytes": "2000"})])
    records = [OutRecord(b"x" * 700) for _ in range(8)]
    first = await gateway.produce("small", records, key="k")
    assert [each.offset for each in first] == list(range(8))
    resource = ConfigResource(ConfigResourceType.TOPIC, "small")
    change = ConfigChange("max.message.bytes", "100000")
    await gateway.admin.alter_configs({resource: [change]})
    assert await gateway.produce("small", records, key="k") == first
    assert await count(gateway, "small") == 8


@pytest.mark.parametrize("form", FORMS)
async def test_a_key_is_refused_where_brokers_forget_what_was_written_under_it(
    tmp_path: Path, form: str
) -> None:
    """A repeated request would be written twice, within the time for which its key is good."""
    settings = {"producer.id.expiration.ms": "1000"}
    async with gateway_of(form, tmp_path, settings=settings) as gateway:
        with pytest.raises(KeyLifetimeTooLong, match=r"producer\.id\.expiration\.ms=1000"):
            await gateway.produce("orders", RECORDS, key="k")
        await gateway.produce("orders", RECORDS)
        assert await count(gateway, "orders") == len(RECORDS)


async def test_a_key_is_refused_once_brokers_have_been_told_to_forget_sooner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.gateway.idempotency_keys._CHECK_MS", 0)
    async with gateway_of("local", tmp_path) as gateway:
        await gateway.produce("orders", RECORDS, key="k")
        resource = ConfigResource(ConfigResourceType.BROKER, "")
        change = ConfigChange("producer.id.expiration.ms", "1000")
        await gateway.admin.alter_configs({resource: [change]})
        with pytest.raises(KeyLifetimeTooLong):
            await gateway.produce("orders", RECORDS, key="k")


async def test_no_default_of_a_broker_takes_keys_away_before_their_time(tmp_path: Path) -> None:
    hostile = {
        "log.cleanup.policy": "compact",
        "log.retention.bytes": "0",
        "log.retention.ms": "1",
        "log.message.timestamp.type": "LogAppendTime",
        "log.message.timestamp.before.max.ms": "0",
        "log.message.timestamp.after.max.ms": "0",
        "message.max.bytes": "100",
    }
    async with gateway_of("local", tmp_path, settings=hostile) as gateway:
        kept = {"cleanup.policy": "delete", "max.message.bytes": "100000"}
        await gateway.admin.create_topics([NewTopic("orders", 1, configs=kept)])
        await gateway.produce("orders", RECORDS, key="k")
        resource = ConfigResource(ConfigResourceType.TOPIC, "__headrace_idempotency")
        configs = (await gateway.admin.describe_configs([resource]))[resource]
        limits = {name: configs[name].value for name in ("retention.bytes", "cleanup.policy")}
        assert limits == {"retention.bytes": "-1", "cleanup.policy": "delete"}
        assert int(configs["retention.ms"].value or 0) > GatewayLimits().key_lifetime_ms
        assert configs["message.timestamp.type"].value == "CreateTime"
