"""Batch reads, planned and read without a JVM: places, cuts, isolation, losses."""

from __future__ import annotations

import datetime
import json
import time
from typing import Any

import pytest

from headrace.client import (
    Client,
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    TopicPartition,
)
from headrace.core.errors import HeadraceError, InvalidConfig
from headrace.spark.offset_resolver import DataLoss
from headrace.spark.options import source_options
from headrace.spark.source import TopicRanges
from headrace.testing import Broker
from tests.integration.spark.conftest import Options, TopicMaker
from tests.support.spark_readers import (
    TIME_MS,
    batch_reader,
    numbered,
    read_all,
    send,
    values_of,
)
from tests.support.topics import CODECS


def test_every_column_of_a_record_comes_back(client: Client, topic: str, to: Options) -> None:
    headers = [("a", b"1"), ("b", None)]
    with client.producer() as producer:
        producer.send(topic, b"v", key=b"k", headers=headers, timestamp_ms=TIME_MS)
        producer.send(topic, None, timestamp_ms=TIME_MS + 5)
    first, second = read_all(to(subscribe=topic, includeHeaders="true"))
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 0,
        "offset": 0,
        "timestamp": datetime.datetime.fromtimestamp(TIME_MS / 1000, datetime.UTC),
        "timestampType": 0,
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, [])


def test_headers_are_empty_lists_and_never_null(client: Client, topic: str, to: Options) -> None:
    """A column of nothing but null lists takes Spark's way back to Arrow quadratic time."""
    send(client, topic, numbered(10))
    reader = batch_reader(to(subscribe=topic, includeHeaders="true"))
    [task] = reader.partitions()
    [batch] = reader.read(task)
    assert batch.column("headers").null_count == 0
    assert batch.column("headers").to_pylist() == [[]] * 10


def test_the_broker_may_have_set_the_time(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(message_timestamp_type="LogAppendTime")
    send(client, topic, [b"v"])
    [row] = read_all(to(subscribe=topic))
    assert row["timestampType"] == 1
    assert row["timestamp"].timestamp() * 1000 > TIME_MS


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_read(client: Client, topic: str, to: Options, codec: str) -> None:
    send(client, topic, numbered(300), codec=codec)
    assert values_of(read_all(to(subscribe=topic))) == numbered(300)


def test_several_topics_are_read_as_one(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topics = [make_topic(partitions=2) for _ in range(2)]
    for topic in topics:
        for partition in range(2):
            send(client, topic, [b"%d" % partition], partition=partition)
    rows = read_all(to(subscribe=",".join(topics)))
    found = sorted((row["topic"], row["partition"], row["value"]) for row in rows)
    assert found == sorted((topic, n, b"%d" % n) for topic in topics for n in range(2))


def test_a_pattern_must_match_the_whole_name(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    mark = make_topic("mark")
    send(client, mark, [b"in"])
    send(client, make_topic(f"x{mark}"), [b"out"])
    assert values_of(read_all(to(subscribePattern=f"{mark}.*"))) == [b"in"]


def test_only_assigned_partitions_are_read(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        send(client, topic, [b"%d" % partition], partition=partition)
    assigned = json.dumps({topic: [0, 2]})
    assert values_of(read_all(to(assign=assigned))) == [b"0", b"2"]
    with pytest.raises(InvalidConfig, match="which does not exist"):
        read_all(to(assign=json.dumps({topic: [7]})))


def test_a_topic_that_does_not_exist_is_named(to: Options) -> None:
    quick = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1"}
    with pytest.raises(HeadraceError, match="'no-such-topic' does not exist"):
        read_all({**to(subscribe="no-such-topic"), **quick})


def test_offsets_bound_a_read_and_must_name_every_partition(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=2)
    for partition in range(2):
        send(client, topic, numbered(10, partition * 100), partition=partition)
    start = json.dumps({topic: {"0": 3, "1": -2}})
    end = json.dumps({topic: {"0": 5, "1": -1}})
    rows = read_all(to(subscribe=topic, startingOffsets=start, endingOffsets=end))
    assert values_of(rows) == numbered(2, 3) + numbered(10, 100)
    half = json.dumps({topic: {"0": 3}})
    with pytest.raises(InvalidConfig, match=f"startingOffsets must name every.*{topic}-1"):
        read_all(to(subscribe=topic, startingOffsets=half))
    with pytest.raises(InvalidConfig, match=f"endingOffsets must name every.*{topic}-1"):
        read_all(to(subscribe=topic, endingOffsets=half))


def test_times_bound_a_read(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(10))
    rows = read_all(to(subscribe=topic, startingTimestamp=TIME_MS + 3, endingTimestamp=TIME_MS + 6))
    assert values_of(rows) == numbered(3, 3)


def test_times_of_each_partition_bound_a_read(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(10))
    start = json.dumps({topic: {"0": TIME_MS + 3}})
    end = json.dumps({topic: {"0": TIME_MS + 6}})
    options = to(subscribe=topic, startingOffsetsByTimestamp=start, endingOffsetsByTimestamp=end)
    assert values_of(read_all(options)) == numbered(3, 3)
    other = json.dumps({topic: {"0": 1, "1": 1}})
    with pytest.raises(InvalidConfig, match="startingOffsetsByTimestamp must name"):
        read_all(to(subscribe=topic, startingOffsetsByTimestamp=other))


def test_a_start_later_than_every_record_is_an_error_or_the_end(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(3))
    late = to(subscribe=topic, startingTimestamp=TIME_MS + 10_000)
    with pytest.raises(InvalidConfig, match="startingOffsetsByTimestampStrategy=latest"):
        read_all(late)
    assert read_all({**late, "startingOffsetsByTimestampStrategy": "latest"}) == []


def test_an_end_later_than_every_record_is_the_end(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(3))
    assert len(read_all(to(subscribe=topic, endingTimestamp=TIME_MS + 10_000))) == 3


def test_an_empty_topic_has_no_rows(topic: str, to: Options) -> None:
    assert read_all(to(subscribe=topic)) == []


def test_small_partitions_share_tasks_unless_more_are_wanted(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=8)
    for partition in range(8):
        send(client, topic, numbered(10, partition * 10), partition=partition)

    def tasks(**options: Any) -> list[Any]:
        reader = batch_reader(to(subscribe=topic, **options))
        assert values_of(read_all(to(subscribe=topic, **options))) == numbered(80)
        return list(reader.partitions())

    assert len(tasks(parallelism=2)) == 2
    assert len(tasks(parallelism=3)) == 3
    assert len(tasks(minPartitions=20, parallelism=1)) == 20
    few = tasks(maxRecordsPerPartition=15, parallelism=1)
    assert all(isinstance(task, TopicRanges) for task in few)
    assert max(sum(each.size for each in task.ranges) for task in few) <= 15


def test_stretches_of_one_partition_in_one_task_are_all_read(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(100))
    options = to(subscribe=topic, minPartitions=10)
    reader = batch_reader(options)
    ranges = [each for task in reader.partitions() for each in task.ranges]  # type: ignore[attr-defined]  # a Stretch
    assert len(ranges) == 10
    found = [row for batch in reader.read(TopicRanges(ranges)) for row in batch.to_pylist()]
    assert values_of(found) == numbered(100)


def test_columns_are_pruned(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(2))
    assert read_all(to(subscribe=topic, columns="offset,value")) == [
        {"offset": 0, "value": b"v0"},
        {"offset": 1, "value": b"v1"},
    ]


def test_what_retention_took_is_a_loss_that_fails_or_is_left_out(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(10))
    client.admin.delete_records({TopicPartition(topic, 0): 4})
    wanted = to(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 0}}))
    with pytest.raises(DataLoss, match=r"offsets 0 to 9 .* it has only 4 to 9.*failOnDataLoss"):
        read_all(wanted)
    assert values_of(read_all({**wanted, "failOnDataLoss": "false"})) == numbered(6, 4)
    assert values_of(read_all(to(subscribe=topic))) == numbered(6, 4)


def test_an_end_beyond_the_log_is_a_loss(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(3))
    wanted = to(subscribe=topic, endingOffsets=json.dumps({topic: {"0": 9}}))
    with pytest.raises(DataLoss, match="it has only 0 to 2"):
        read_all(wanted)
    assert len(read_all({**wanted, "failOnDataLoss": "false"})) == 3


def test_records_deleted_between_plan_and_read_are_a_loss(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(10))
    for fail, wanted in (("true", None), ("false", numbered(4, 6))):
        reader = batch_reader(to(subscribe=topic, failOnDataLoss=fail))
        [task] = reader.partitions()
        client.admin.delete_records({TopicPartition(topic, 0): 6 if fail == "false" else 4})
        if wanted is None:
            with pytest.raises(DataLoss, match=r"offsets 0 to 3 .* are gone"):
                list(reader.read(task))
        else:
            rows = [row for batch in reader.read(task) for row in batch.to_pylist()]
            assert values_of(rows) == wanted


def test_a_topic_deleted_between_plan_and_read_is_a_loss(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    for fail in ("true", "false"):
        topic = make_topic()
        send(client, topic, numbered(10))
        reader = batch_reader(to(subscribe=topic, failOnDataLoss=fail))
        [task] = reader.partitions()
        client.admin.delete_topics([topic])
        if fail == "true":
            with pytest.raises(DataLoss, match=f"{topic}-0 is gone"):
                list(reader.read(task))
        else:
            assert list(reader.read(task)) == []


def test_gaps_that_compaction_leaves_are_no_loss(to: Options) -> None:
    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": str(1 << 20),
        "min.cleanable.dirty.ratio": "0.01",
    }
    with (
        Broker(settings={"log.cleaner.backoff.ms": 50}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        topic = broker.create_topic("compacted", configs=configs)
        options = {**to(subscribe=topic), "kafka.bootstrap.servers": broker.bootstrap_servers}
        send(client, topic, [b"%d" % number + b"." * 100_000 for number in range(60)], key=b"same")
        deadline = time.monotonic() + 60
        while len(rows := read_all(options)) > 40 and time.monotonic() < deadline:
            time.sleep(0.05)
        offsets = [row["offset"] for row in rows]
        assert len(offsets) <= 40, "nothing was compacted"
        assert offsets[-1] == 59
        missing = next(offset for offset in range(60) if offset not in offsets)

        def between(start: int, end: int) -> list[int]:
            bounds = {
                "startingOffsets": json.dumps({topic: {"0": start}}),
                "endingOffsets": json.dumps({topic: {"0": end}}),
            }
            return [row["offset"] for row in read_all({**options, **bounds})]

        # Cleaning may go on meanwhile, so that there are fewer and fewer.
        whole = between(0, 60)
        assert whole[-1] == 59
        assert set(whole) <= set(offsets)
        assert set(between(0, 59)) <= set(whole) - {59}
        assert between(missing, missing + 1) == [], "nothing but a gap"


def test_a_broker_that_restarts_while_it_is_read_loses_nothing(to: Options) -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        topic = broker.create_topic("restarted")
        send(client, topic, [b"%d" % n + b"." * 1000 for n in range(3000)])
        options = {
            **to(subscribe=topic),
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.max.partition.fetch.bytes": "200000",
        }
        reader = batch_reader(options)
        [task] = reader.partitions()
        batches = reader.read(task)
        rows = next(batches).to_pylist()
        broker.restart()
        for batch in batches:
            rows += batch.to_pylist()
        assert [row["offset"] for row in rows] == list(range(3000))


def test_a_read_that_hears_nothing_gives_up_in_time(to: Options) -> None:
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        topic = broker.create_topic("silent")
        send(client, topic, numbered(3))
        options = {
            **to(subscribe=topic, kafkaConsumer__pollTimeoutMs=300),
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "kafka.default.api.timeout.ms": "300",
            "kafka.request.timeout.ms": "200",
        }
        reader = batch_reader(options)
        [task] = reader.partitions()
        broker.kill()
        with pytest.raises(HeadraceError, match=r"gave up|no record of|no broker"):
            list(reader.read(task))


def test_a_message_larger_than_a_fetch_is_read(client: Client, topic: str, to: Options) -> None:
    send(client, topic, [b"x" * 500_000, b"y"])
    options = {**to(subscribe=topic), "kafka.max.partition.fetch.bytes": "1000"}
    assert [len(value) for value in values_of(read_all(options))] == [500_000, 1]


@pytest.mark.parametrize(
    ("given", "named"),
    [({"groupIdPrefix": "nightly"}, "nightly"), ({"kafka.group.id": "mine"}, "mine")],
)
def test_a_group_names_the_client_and_is_not_joined(
    client: Client, topic: str, to: Options, given: dict[str, str], named: str
) -> None:
    send(client, topic, numbered(3))
    options = {**to(subscribe=topic), **given}
    assert values_of(read_all(options)) == numbered(3)
    assert source_options(options, streaming=False).client.client_id == named
    assert named not in {each.group_id for each in client.admin.list_groups()}


def test_a_large_read_comes_in_batches_of_bounded_size(
    client: Client, topic: str, to: Options
) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    client.admin.alter_configs({resource: [ConfigChange("max.message.bytes", "10000000")]})
    send(client, topic, [b"x"] * 150_000, codec="gzip")
    reader = batch_reader(to(subscribe=topic, columns="offset"))
    sizes = [batch.num_rows for task in reader.partitions() for batch in reader.read(task)]
    assert sum(sizes) == 150_000
    assert max(sizes) <= 65_536
