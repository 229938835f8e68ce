"""Offsets without records: a gap at the very end of a log, and what transactions leave behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from headrace.client import EARLIEST, LATEST, Client, TopicPartition
from headrace.core.errors import HeadraceError
from headrace.spark import fetch as fetching
from headrace.spark.offsets import Range
from headrace.spark.options import source_options
from headrace.testing import Broker
from tests.support.brokers import ApacheKafka
from tests.support.groups import required
from tests.support.spark_readers import (
    StreamRun,
    batch_reader,
    numbered,
    read_all,
    send,
    values_of,
)
from tests.support.topics import Topics


@pytest.fixture
def gap_at_the_end(tmp_path: Path) -> tuple[Path, str]:
    """A log with offsets 0 to 4 that ends at 10, as cleaning leaves one whose end was rolled."""
    with Broker(data_dir=tmp_path / "data") as broker, Client(broker.bootstrap_servers) as client:
        topic = broker.create_topic("gap")
        send(client, topic, numbered(5))
    (tmp_path / "data" / "gap-0" / f"{10:020}.log").touch()
    return tmp_path / "data", topic


def test_a_gap_at_the_end_of_a_log_ends_a_read(
    gap_at_the_end: tuple[Path, str], caplog: pytest.LogCaptureFixture
) -> None:
    directory, topic = gap_at_the_end
    with Broker(data_dir=directory) as broker, Client(broker.bootstrap_servers) as client:
        [end] = client.admin.list_offsets({TopicPartition(topic, 0): LATEST}).values()
        assert end.offset == 10, "the log does not end in a gap"
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
        with caplog.at_level(logging.WARNING):
            assert values_of(read_all(options)) == numbered(5)
        assert not caplog.records, "a gap is no loss"
        run = StreamRun({**options, "startingOffsets": "earliest"})
        assert values_of(run.step()) == numbered(5)
        send(client, topic, numbered(2, 5))
        assert values_of(run.step()) == numbered(2, 5)
        run.stop()


def test_records_that_are_slow_to_come_are_no_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker that says nothing for a while has not said that there is nothing."""
    monkeypatch.setattr(fetching, "_QUIET_MS", 20)
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        topic = broker.create_topic("slow")
        send(client, topic, numbered(50))
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "subscribe": topic,
            "kafka.request.timeout.ms": "200",
            "kafka.default.api.timeout.ms": "200",
        }
        reader = batch_reader(options)
        [task] = reader.partitions()
        broker.pause()
        try:
            with pytest.raises(HeadraceError):
                list(reader.read(task))
        finally:
            broker.resume()
        assert values_of(read_all(options)) == numbered(50)


def test_a_log_that_was_cut_short_is_a_loss(topic: str, client: Client, broker: Broker) -> None:
    send(client, topic, numbered(5))
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    parsed = source_options(options, streaming=False)
    wanted = [Range(TopicPartition(topic, 0), 0, 9)]
    with pytest.raises(HeadraceError, match="ends at offset 5, before 9"):
        list(fetching.fetch(client, parsed, wanted))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka, which has transactions to read."""
    started = required(lambda: ApacheKafka(tmp_path_factory.mktemp("kafka") / "data"))
    started.start()
    yield started
    started.stop()


def test_committed_reads_leave_out_what_was_aborted(kafka: ApacheKafka) -> None:
    topic = Topics(kafka.bootstrap_servers).create("transactions")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "t", "linger.ms": 0}
    )
    producer.init_transactions(60)
    for number, keep in enumerate((True, False, True, False)):
        producer.begin_transaction()
        for each in range(3):
            producer.produce(topic, b"%d.%d" % (number, each))
        if keep:
            producer.commit_transaction(60)
        else:
            producer.flush(60)  # or the broker never sees what is aborted
            producer.abort_transaction(60)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic}
    every = [b"%d.%d" % (number, each) for number in range(4) for each in range(3)]
    assert values_of(read_all(options)) == every
    committed = {**options, "kafka.isolation.level": "read_committed"}
    kept = [value for value in every if value[:1] in (b"0", b"2")]
    rows = read_all(committed)
    assert values_of(rows) == kept
    # A marker follows each transaction, so that offsets have gaps; the log ends in one.
    assert [row["offset"] for row in rows] == [0, 1, 2, 8, 9, 10]
    with Client(kafka.bootstrap_servers) as client:
        place = TopicPartition(topic, 0)
        [start] = client.admin.list_offsets({place: EARLIEST}).values()
        [end] = client.admin.list_offsets({place: LATEST}).values()
        assert (start.offset, end.offset) == (0, 16)
        producer.begin_transaction()
        producer.produce(topic, b"open")
        producer.flush(60)
        assert values_of(read_all(committed)) == kept, "nor what is still open"
        assert len(read_all(options)) == 13
        producer.abort_transaction(60)
