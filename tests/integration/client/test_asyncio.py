"""The asyncio face over real sockets, on asyncio's own loop and on uvloop."""

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from headrace.client import (
    EARLIEST,
    AsyncClient,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    ProducerSettings,
    ReaderSettings,
    TopicPartition,
)
from headrace.client.core.settings import CodecName
from headrace.core.errors import ApiError, ErrorCode
from tests.support.brokers import BrokerProcess
from tests.support.topics import CODECS, Topics, samples

Story = Callable[[AsyncClient], Awaitable[None]]
PATIENCE_SECONDS = 60


@pytest.fixture(params=["asyncio", "uvloop"])
def tell(request: pytest.FixtureRequest, broker: BrokerProcess) -> Callable[[Story], None]:
    """Runs a story with a client on a loop of its own."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else None

    async def with_client(story: Story) -> None:
        async with AsyncClient(broker.bootstrap_servers) as client:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await story(client)

    def run(story: Story) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(with_client(story))

    return run


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_comes_back(
    tell: Callable[[Story], None], topic: str, codec: CodecName
) -> None:
    async def story(client: AsyncClient) -> None:
        sent = samples()
        async with client.producer(ProducerSettings(codec=codec)) as producer:
            for sample in sent:
                await producer.send(
                    topic,
                    sample.value,
                    key=sample.key,
                    headers=sample.headers,
                    timestamp_ms=sample.timestamp_ms,
                )
        found: list[tuple[bytes | None, bytes | None, int]] = []
        async with client.reader({TopicPartition(topic, 0): EARLIEST}) as reader:
            async for record in reader:
                found.append((record.key, record.value, record.timestamp))
                if len(found) == len(sent):
                    break
        assert found == [(s.key, s.value, s.timestamp_ms) for s in sent]

    tell(story)


def test_much_data_comes_back_whole_and_in_order(
    tell: Callable[[Story], None], topics: Topics
) -> None:
    topic = topics.create(f"much-{uuid.uuid4().hex[:8]}", partitions=3)
    count = 20_000

    async def story(client: AsyncClient) -> None:
        async with client.producer(ProducerSettings(batch_bytes=16_384)) as producer:
            for number in range(count):
                await producer.send(topic, b"%08d" % number * 12, key=b"%d" % (number % 100))
        partitions = {TopicPartition(topic, number): EARLIEST for number in range(3)}
        seen: dict[bytes | None, list[int]] = {}
        total = 0
        async with client.reader(partitions) as reader:
            while total < count:
                for records in (await reader.poll(max_records=3000)).values():
                    total += len(records)
                    for record in records:
                        seen.setdefault(record.key, []).append(int((record.value or b"")[:8]))
        for key, numbers in seen.items():
            assert numbers == list(range(int(key or b""), count, 100))

    tell(story)


def test_a_long_poll_does_not_hold_up_other_calls(
    tell: Callable[[Story], None], topic: str
) -> None:
    async def story(client: AsyncClient) -> None:
        settings = ReaderSettings(fetch_wait_ms_max=20_000)
        async with client.reader({TopicPartition(topic, 0): 0}, settings) as reader:
            waiting = asyncio.ensure_future(reader.poll(timeout_ms=30_000))
            async with client.producer() as producer:
                await client.admin.describe_topics([topic])
                assert not waiting.done()
                await producer.send_and_wait(topic, b"now")
            assert [r.value for r in (await waiting)[TopicPartition(topic, 0)]] == [b"now"]

    tell(story)


def test_admin_calls_have_their_effect(tell: Callable[[Story], None]) -> None:
    name = f"admin-{uuid.uuid4().hex[:8]}"
    resource = ConfigResource(ConfigResourceType.TOPIC, name)

    async def story(client: AsyncClient) -> None:
        admin = client.admin
        ids = await admin.create_topics([NewTopic(name, 2, 1, {"retention.ms": "100000"})])
        await admin.create_partitions({name: 3})
        described = (await admin.describe_topics([name]))[name]
        assert (described.topic_id, len(described.partitions)) == (ids[name], 3)
        assert name in [topic.name for topic in await admin.list_topics()]
        await admin.alter_configs(
            {
                resource: [
                    ConfigChange("retention.ms", None, ConfigOperation.DELETE),
                    ConfigChange("cleanup.policy", "compact", ConfigOperation.APPEND),
                ]
            }
        )
        while True:
            configs = (await admin.describe_configs([resource]))[resource]
            if configs["cleanup.policy"].value == "delete,compact":
                break
        assert configs["retention.ms"].is_default
        cluster = await admin.describe_cluster()
        node = cluster.brokers[0].node_id
        broker = ConfigResource(ConfigResourceType.BROKER, str(node))
        assert "log.dirs" in (await admin.describe_configs([broker]))[broker]
        async with client.producer() as producer:
            await producer.send_and_wait(name, b"value", key=b"k", partition=1)
        partition = TopicPartition(name, 1)
        (state,) = (await admin.describe_producers([partition]))[partition]
        assert (state.producer_epoch, state.last_sequence) == (0, 0)
        sizes = {
            r.partition: r.size_bytes for d in await admin.describe_log_dirs() for r in d.replicas
        }
        assert sizes[partition] > 0
        await admin.delete_topics([ids[name]])
        while name in [topic.name for topic in await admin.list_topics()]:
            pass
        with pytest.raises(ApiError) as refusal:
            await admin.describe_topics([name])
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    tell(story)


def test_records_that_break_the_topics_rules_are_told_one_by_one(
    tell: Callable[[Story], None], topics: Topics
) -> None:
    topic = topics.create(f"keyed-{uuid.uuid4().hex[:8]}", config={"cleanup.policy": "compact"})

    async def story(client: AsyncClient) -> None:
        async with client.producer(ProducerSettings(linger_ms=100)) as producer:
            good = await producer.send(topic, b"v", key=b"k")
            bad = await producer.send(topic, b"v")
            await producer.flush()
            assert isinstance(bad.exception(), ApiError)
            assert "may be sent again" in str(good.exception())
            assert (await producer.send_and_wait(topic, b"v", key=b"k")).offset == 0

    tell(story)
