"""The blocking face: every codec, keys, headers, times, large records, seeks, other clients."""

import asyncio
import pickle
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from headrace.client import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    AsyncClient,
    BrokerUnreachable,
    CallTimedOut,
    Client,
    ClientClosed,
    ClientSettings,
    ConnectFailed,
    ConnectionLost,
    NewTopic,
    ProducerSettings,
    Reader,
    ReaderSettings,
    Record,
    RecordMetadata,
    TopicPartition,
    at_time,
)
from headrace.client.core.settings import CodecName
from headrace.core.errors import ApiError, ErrorCode, OffsetOutOfRange
from headrace.core.ids import NodeId
from headrace.network.address import BrokerAddress
from headrace.network.send_request import SendRequest
from headrace.protocol.frames import decode_request_header, encode_response
from headrace.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import iterate_headers
from tests.support.brokers import BrokerProcess
from tests.support.processes import free_port
from tests.support.topics import CODECS, FIRST_TIMESTAMP_MS, Sample, Topics, samples

PATIENCE_SECONDS = 60


def send_all(client: Client, topic: str, sent: list[Sample], codec: CodecName) -> list[int]:
    with client.producer(ProducerSettings(codec=codec)) as producer:
        deliveries: list[Future[RecordMetadata]] = [
            producer.send(
                topic,
                sample.value,
                key=sample.key,
                headers=sample.headers,
                partition=0,
                timestamp_ms=sample.timestamp_ms,
            )
            for sample in sent
        ]
        producer.flush()
    return [delivery.result(0).offset for delivery in deliveries]


def read_all(reader: Reader, count: int) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for records in reader.poll(max_records=count - len(found)).values():
            found += records
    return found


def as_samples(records: list[Record]) -> list[Sample]:
    return [
        Sample(
            record.key,
            record.value,
            tuple((name, value or b"") for name, value in record.headers),
            record.timestamp,
        )
        for record in records
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_sent_comes_back(client: Client, topic: str, codec: CodecName) -> None:
    sent = samples()
    offsets = send_all(client, topic, sent, codec)
    assert offsets == list(range(len(sent)))
    with client.reader({TopicPartition(topic, 0): EARLIEST}) as reader:
        assert as_samples(read_all(reader, len(sent))) == sent


@pytest.mark.parametrize("codec", CODECS)
def test_another_client_reads_what_ours_wrote(
    client: Client, broker: BrokerProcess, topic: str, codec: CodecName
) -> None:
    sent = samples()
    send_all(client, topic, sent, codec)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "by-assignment",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([ConfluentPartition(topic, 0, 0)])
    found: list[tuple[object, object, int]] = []
    while len(found) < len(sent):
        batch = consumer.consume(len(sent) - len(found), timeout=PATIENCE_SECONDS)
        assert batch, f"{len(found)} records came"
        found += [(m.key(), m.value(), m.timestamp()[1]) for m in batch]
    consumer.close()
    assert found == [(s.key, s.value, s.timestamp_ms) for s in sent]


@pytest.mark.parametrize("codec", CODECS)
def test_ours_reads_what_another_client_wrote(
    client: Client, broker: BrokerProcess, topic: str, codec: str
) -> None:
    producer = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec}
    )
    for number in range(500):
        producer.produce(topic, b"value-%d" % number * 10, key=b"%d" % number)
    producer.flush(PATIENCE_SECONDS)
    with client.reader({TopicPartition(topic, 0): 0}) as reader:
        found = read_all(reader, 500)
    assert [record.key for record in found] == [b"%d" % number for number in range(500)]


def test_keys_go_where_the_java_partitioner_puts_them(
    client: Client, broker: BrokerProcess, topics: Topics
) -> None:
    topic = topics.create(f"keys-{uuid.uuid4().hex[:8]}", partitions=7)
    keys = [b"key-%d" % number for number in range(100)]
    theirs: dict[bytes | None, int | None] = {}
    other = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap_servers, "partitioner": "murmur2_random"}
    )
    for key in keys:
        other.produce(
            topic, b"", key=key, on_delivery=lambda _, m: theirs.update({m.key(): m.partition()})
        )
    other.flush(PATIENCE_SECONDS)
    with client.producer() as producer:
        deliveries = {key: producer.send(topic, b"", key=key) for key in keys}
        producer.flush()
    assert {key: told.result(0).partition for key, told in deliveries.items()} == theirs


def test_large_records_pass(client: Client, topics: Topics) -> None:
    topic = topics.create(
        f"large-{uuid.uuid4().hex[:8]}", config={"max.message.bytes": str(8 << 20)}
    )
    value = bytes(range(256)) * 4 * 5000
    with client.producer(ProducerSettings(request_bytes_max=8 << 20)) as producer:
        assert producer.send_and_wait(topic, value).offset == 0
        assert producer.send_and_wait(topic, b"after").offset == 1
    with client.reader({TopicPartition(topic, 0): 0}) as reader:
        assert [record.value for record in read_all(reader, 2)] == [value, b"after"]


def test_a_batch_that_is_too_large_is_split_and_one_record_is_refused(
    client: Client, topics: Topics
) -> None:
    topic = topics.create(f"small-{uuid.uuid4().hex[:8]}", config={"max.message.bytes": "10000"})
    settings = ProducerSettings(linger_ms=200, batch_bytes=200_000)
    with client.producer(settings) as producer:
        values = [b"%04d" % number * 100 for number in range(200)]
        deliveries = [producer.send(topic, value) for value in values]
        refused = producer.send(topic, b"x" * 20_000)
        producer.flush()
        assert [told.result(0).offset for told in deliveries] == list(range(200))
        error = refused.exception(0)
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.MESSAGE_TOO_LARGE
        assert producer.send_and_wait(topic, b"after").offset == 200
    with client.reader({TopicPartition(topic, 0): 0}) as reader:
        assert [record.value for record in read_all(reader, 201)] == [*values, b"after"]


def test_reading_starts_where_it_is_told(client: Client, topic: str) -> None:
    sent = samples(40)
    send_all(client, topic, sent, "none")
    partition = TopicPartition(topic, 0)
    with client.reader({partition: at_time(FIRST_TIMESTAMP_MS + 5_500)}) as reader:
        assert reader.position(partition) == 6
        reader.seek(partition, 30)
        assert [record.offset for record in read_all(reader, 10)] == list(range(30, 40))
        reader.seek(partition, LATEST)
        assert reader.poll(timeout_ms=50) == {}
        assert reader.position(partition) == 40
        reader.seek(partition, at_time(FIRST_TIMESTAMP_MS + 10**10))
        assert reader.position(partition) == 40
        reader.seek(partition, EARLIEST)
        assert read_all(reader, 1)[0].offset == 0
        assert reader.high_watermark(partition) == 40
    found = client.admin.list_offsets({partition: MAX_TIMESTAMP})
    assert found[partition][:2] == (39, sent[-1].timestamp_ms)


def test_deleted_records_are_out_of_range(client: Client, topic: str) -> None:
    send_all(client, topic, samples(20), "none")
    partition = TopicPartition(topic, 0)
    assert client.admin.delete_records({partition: 15}) == {partition: 15}
    with client.reader({partition: 3}) as reader, pytest.raises(OffsetOutOfRange, match="offset 3"):
        reader.poll()
    settings = ReaderSettings(offset_reset="earliest")
    with client.reader({partition: 3}, settings) as reader:
        assert read_all(reader, 1)[0].offset == 15


@pytest.mark.parametrize("sessions", [False, True])
def test_many_partitions_and_a_small_limit_starve_nobody(
    client: Client, topics: Topics, sessions: bool
) -> None:
    topic = topics.create(f"many-{uuid.uuid4().hex[:8]}", partitions=8)
    with client.producer() as producer:
        for number in range(800):
            producer.send(topic, b"%d" % number * 50)
        producer.flush()
    partitions = {TopicPartition(topic, number): EARLIEST for number in range(8)}
    settings = ReaderSettings(
        fetch_bytes_max=3000, partition_bytes_max=2000, prefetch_bytes=0, sessions=sessions
    )
    with client.reader(partitions, settings) as reader:
        seen: dict[TopicPartition, list[int]] = {}
        for _ in range(2000):
            for partition, records in reader.poll().items():
                seen.setdefault(partition, []).extend(record.offset for record in records)
            if sum(map(len, seen.values())) == 800:
                break
    assert seen == {partition: list(range(100)) for partition in partitions}


def test_raw_chunks_hold_whole_batches(client: Client, topic: str) -> None:
    send_all(client, topic, samples(40), "zstd")
    with client.reader({TopicPartition(topic, 0): EARLIEST}) as reader:
        (chunk,) = reader.fetch(timeout_ms=10_000)
        offsets = [
            record.offset
            for position, header in iterate_headers(chunk.data)
            for record in iterate_records(chunk.data, position, header)
        ]
        assert offsets == list(range(40))
        assert (chunk.high_watermark, chunk.log_start_offset) == (40, 0)
        assert reader.position(TopicPartition(topic, 0)) == 40


def test_ready_made_batches_are_sent_once_and_in_order(client: Client, topic: str) -> None:
    def batch(number: int) -> bytes:
        return bytes(encode_batch([Record(i, 7, None, b"%d-%d" % (number, i)) for i in range(10)]))

    with client.producer() as producer:
        deliveries = [
            producer.send_batch(TopicPartition(topic, 0), batch(number)) for number in range(20)
        ]
        assert [told.result(PATIENCE_SECONDS).offset for told in deliveries] == [
            number * 10 for number in range(20)
        ]
    with client.reader({TopicPartition(topic, 0): 0}) as reader:
        assert read_all(reader, 200)[-1].value == b"19-9"


def test_threads_may_share_a_producer(client: Client, topic: str) -> None:
    with client.producer(ProducerSettings(buffer_bytes=50_000)) as producer:

        def work(name: int) -> None:
            for number in range(500):
                producer.send(topic, b"%d:%d" % (name, number) + b"." * 100)

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
    with client.reader({TopicPartition(topic, 0): 0}) as reader:
        found = [record.value or b"" for record in read_all(reader, 2000)]
    for name in range(4):
        mine = [v.rstrip(b".") for v in found if v.startswith(b"%d:" % name)]
        assert mine == [b"%d:%d" % (name, number) for number in range(500)]


def test_a_topic_made_anew_is_found_again(client: Client, topics: Topics, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with client.producer() as producer:
        producer.send_and_wait(topic, b"old")
        topics.delete(topic)
        topics.create(topic)
        assert producer.send_and_wait(topic, b"new").offset == 0
    with client.reader({partition: EARLIEST}) as reader:
        assert [record.value for record in read_all(reader, 1)] == [b"new"]


def test_settings_travel_and_connections_are_made_where_they_arrive(
    broker: BrokerProcess, topic: str
) -> None:
    settings = pickle.loads(pickle.dumps(ClientSettings(broker.bootstrap_servers)))
    with Client(settings) as client:
        assert client.topic(topic).name == topic


def test_a_missing_topic_is_named_at_once(client: Client) -> None:
    with (
        client.reader({TopicPartition("no-such-topic", 0): 0}) as reader,
        pytest.raises(ApiError, match="'no-such-topic' does not exist"),
    ):
        reader.poll(timeout_ms=30_000)


def test_admin_calls_refuse_in_the_brokers_words(client: Client, topic: str) -> None:
    with pytest.raises(ApiError) as refusal:
        client.admin.create_topics([NewTopic(topic, 1, 1)])
    assert refusal.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(ApiError) as refusal:
        client.admin.create_topics([NewTopic("bad name", 1, 1)])
    assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_where_nobody_listens_the_address_is_told() -> None:
    port = free_port("127.0.0.1")
    with Client(ClientSettings(f"127.0.0.1:{port}", call_timeout_ms=300)) as client:
        with pytest.raises(BrokerUnreachable, match=f"cannot connect to 127.0.0.1:{port}"):
            client.connect()
        with pytest.raises(CallTimedOut, match=f"127.0.0.1:{port}"):
            client.admin.list_topics()


async def test_a_host_that_cannot_be_a_name_is_refused_at_once() -> None:
    """The resolver has an error of its own for it, which nobody waited for."""
    for host in ("a..b", "x" * 70 + ".org"):
        with Client(f"{host}:9092") as client, pytest.raises(ConnectFailed, match="label"):
            client.connect()
        async with asyncio.timeout(10), AsyncClient(f"{host}:9092") as aio:
            with pytest.raises(ConnectFailed, match="label"):
                await aio.connect()


@contextmanager
def peer_that_answers(greetings: int) -> Iterator[int]:
    """Says what it speaks so many times, takes one more request and hangs up; gives its port."""
    api = ApiVersion(api_key=3, min_version=0, max_version=13)

    def serve() -> None:
        peer, _ = server.accept()
        with peer:
            for _ in range(greetings):
                header = decode_request_header(peer.recv(65536)[4:])
                response = ApiVersionsResponse(api_keys=[api])
                peer.sendall(encode_response(response, header.api_version, header.correlation_id))
            peer.recv(65536)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


@pytest.mark.parametrize(("greetings", "kind"), [(0, ConnectFailed), (1, ConnectionLost)])
def test_a_lost_request_is_told_from_one_that_was_not_sent(
    greetings: int, kind: type[BrokerUnreachable]
) -> None:
    with (
        peer_that_answers(greetings) as port,
        Client(f"127.0.0.1:{port}") as client,
        pytest.raises(kind),
    ):
        client.connect()


def test_what_a_broker_that_moved_has_not_answered_is_lost_and_not_closed() -> None:
    with peer_that_answers(1) as port, Client(f"127.0.0.1:{port}") as client:
        cluster, send = client.requests.session.cluster, client.requests.submit
        request = SendRequest(NodeId(5), MetadataRequest(topics=[]), MetadataResponse, 5_000)
        cluster.add_broker(BrokerAddress(NodeId(5), "127.0.0.1", port))
        first = send(request)
        assert not first.outcome
        cluster.add_broker(BrokerAddress(NodeId(5), "127.0.0.1", free_port("127.0.0.1")))
        assert isinstance(send(request).outcome, ConnectFailed)
        assert isinstance(first.outcome, ConnectionLost)


def test_what_is_closed_says_so(client: Client, topic: str) -> None:
    producer = client.producer()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send(topic, b"")
    reader = client.reader({TopicPartition(topic, 0): 0})
    client.close()
    with pytest.raises(ClientClosed):
        reader.poll()
    with pytest.raises(ClientClosed):
        client.admin.list_topics()


@pytest.mark.parametrize(
    "wrong", [{"value": "text"}, {"headers": [("a", "b")]}, {"timestamp_ms": "2024"}]
)
def test_a_record_of_wrong_types_is_refused_at_once_and_harms_no_other(
    client: Client, topic: str, wrong: dict[str, Any]
) -> None:
    arguments: dict[str, Any] = {"topic": topic, "value": b"v", **wrong}
    with client.producer() as producer:
        with pytest.raises(TypeError, match=next(iter(wrong))):
            producer.send(**arguments)
        assert producer.send_and_wait(topic, b"good").offset == 0
        with pytest.raises(TypeError):
            producer.send(**arguments)
    with client.reader({TopicPartition(topic, 0): 0}) as reader:
        assert [record.value for record in read_all(reader, 1)] == [b"good"]


def test_what_a_loop_leaves_behind_is_not_lost(client: Client, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    with client.producer() as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number)
    with client.reader({partition: EARLIEST}) as reader:
        for received in reader:
            assert received.offset == 0
            break
        assert reader.position(partition) == 1
        assert next(reader).offset == 1
        assert [record.offset for record in read_all(reader, 10)] == list(range(2, 12))
        assert [next(reader).offset for _ in range(8)] == list(range(12, 20))
