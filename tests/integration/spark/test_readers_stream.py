"""Streams driven trigger by trigger without a JVM: limits, new partitions, losses, groups."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from headrace.client import Client, NewTopic, TopicPartition
from headrace.core.errors import HeadraceError
from headrace.spark import source
from headrace.spark.offset_resolver import DataLoss
from headrace.spark.source import CheckpointLost
from headrace.testing import Broker
from tests.integration.spark.conftest import Options, TopicMaker
from tests.support.spark_readers import (
    TIME_MS,
    StreamRun,
    numbered,
    send,
    stream_reader,
    values_of,
)


def test_a_stream_begins_where_it_is_told(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(5))
    for option, value, wanted in (
        ("includeHeaders", "false", 5),
        ("startingOffsets", "earliest", 0),
        ("startingOffsets", json.dumps({topic: {"0": 2}}), 2),
        ("startingTimestamp", TIME_MS + 3, 3),
        ("startingOffsetsByTimestamp", json.dumps({topic: {"0": TIME_MS + 4}}), 4),
    ):
        reader = stream_reader(to(subscribe=topic, **{option: value}))
        assert reader.initialOffset() == {topic: {"0": wanted}}
        reader.stop()


def test_each_trigger_reads_what_is_new(client: Client, topic: str, to: Options) -> None:
    run = StreamRun(to(subscribe=topic, startingOffsets="earliest"))
    assert run.step() == []
    send(client, topic, numbered(3))
    assert values_of(run.step()) == numbered(3)
    assert run.step() == []
    send(client, topic, numbered(2, 3))
    assert values_of(run.step()) == numbered(2, 3)
    run.stop()


@pytest.mark.parametrize(
    "start",
    [
        {},
        {"startingOffsets": '{"TOPIC": {"0": -1}}'},
        {"startingTimestamp": TIME_MS * 2, "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
@pytest.mark.parametrize("arrives", ["before batch 0 is planned", "after it has failed"])
def test_a_first_batch_that_runs_again_begins_where_it_began(
    client: Client, topic: str, to: Options, start: dict[str, Any], arrives: str
) -> None:
    """Its start is in no checkpoint: Spark asks again, when the end of the topic is another."""
    send(client, topic, numbered(5))
    given = {name: str(value).replace("TOPIC", topic) for name, value in start.items()}
    options = to(subscribe=topic, **given)
    killed = stream_reader(options)
    begun = killed.initialOffset()
    if arrives == "before batch 0 is planned":
        send(client, topic, numbered(3, 5))
    logged = killed.latestOffset(begun, killed.getDefaultReadLimit())
    killed.stop()
    if arrives == "after it has failed":
        send(client, topic, numbered(3, 5))

    again = stream_reader(options)
    assert again.initialOffset() == {topic: {"0": 8}}
    assert again.partitions(again.initialOffset(), logged) == []
    again.stop()
    run = StreamRun(options, start=logged)
    assert values_of(run.step()) == numbered(3, 5)
    run.stop()


@pytest.mark.parametrize(
    "start",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": '{"TOPIC": {"0": -2}}'},
        {"startingTimestamp": TIME_MS},
    ],
)
def test_what_retention_took_before_the_first_batch_ran_again_is_a_loss(
    client: Client, topic: str, to: Options, start: dict[str, Any]
) -> None:
    send(client, topic, numbered(10))
    given = {name: str(value).replace("TOPIC", topic) for name, value in start.items()}
    options = to(subscribe=topic, commitGroup=f"group-of-{topic}", **given)
    killed = stream_reader(options)
    logged = killed.latestOffset(killed.initialOffset(), killed.getDefaultReadLimit())
    killed.stop()
    client.admin.delete_records({TopicPartition(topic, 0): 6})

    again = stream_reader(options)
    assert again.partitions(again.initialOffset(), logged) == []
    again.stop()
    run = StreamRun(options, start=logged)
    with pytest.raises(DataLoss, match=r"offsets 0 to 5 .* are gone"):
        run.step()
    run.stop()


def test_offsets_that_are_given_as_such_are_read_from_the_first_batch_on(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(5))
    reader = stream_reader(to(subscribe=topic, startingOffsets=json.dumps({topic: {"0": 2}})))
    begun = reader.initialOffset()
    assert reader.latestOffset(begun, reader.getDefaultReadLimit()) == {topic: {"0": 5}}
    reader.stop()


def test_a_query_killed_before_its_first_batch_has_no_checkpoint_to_lose(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(10))
    options = to(subscribe=topic, startingOffsets="earliest", commitGroup=f"young-{topic}")
    killed = stream_reader(options)
    killed.latestOffset(killed.initialOffset(), killed.getDefaultReadLimit())
    killed.stop()
    client.admin.delete_records({TopicPartition(topic, 0): 6})
    run = StreamRun(options)
    assert values_of(run.step()) == numbered(4, 6)
    run.stop()


def test_a_start_at_the_end_holds_for_a_run_over_what_is_there(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(5))
    run = StreamRun(to(subscribe=topic))
    send(client, topic, numbered(3, 5))
    run.planner.prepareForTriggerAvailableNow()
    assert values_of(run.step()) == numbered(3, 5)
    run.stop()


def test_limits_are_told_to_spark(topic: str, to: Options) -> None:
    limits: list[tuple[dict[str, Any], Any]] = [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 7}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": 3}, ReadMinRows(3)),
        ({"maxOffsetsPerTrigger": 7, "minOffsetsPerTrigger": 3}, ReadMaxRows(7)),
    ]
    for options, wanted in limits:
        assert stream_reader(to(subscribe=topic, **options)).getDefaultReadLimit() == wanted


def test_a_trigger_takes_no_more_than_its_limit(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=2)
    send(client, topic, numbered(30), partition=0)
    send(client, topic, numbered(10, 30), partition=1)
    run = StreamRun(to(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=8))
    first = run.step()
    assert [row["value"] for row in first if row["partition"] == 0] == numbered(6)
    assert [row["value"] for row in first if row["partition"] == 1] == numbered(2, 30)
    rows = list(first)
    while found := run.step():
        assert len(found) <= 9
        rows += found
    assert values_of(rows) == numbered(40)
    run.stop()


def test_one_run_without_limits_takes_everything(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(20))
    run = StreamRun(to(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=5))
    assert len(run.step_all()) == 20
    run.stop()


def test_a_trigger_waits_for_its_least_until_its_delay_is_over(
    client: Client, topic: str, to: Options
) -> None:
    patient = to(
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger=5,
        maxOffsetsPerTrigger=6,
        maxTriggerDelay="1h",
    )
    send(client, topic, numbered(1))
    run = StreamRun(patient)
    assert len(run.step()) == 1, "the first trigger has waited for ever already"
    send(client, topic, numbered(3))
    assert run.step() == []
    send(client, topic, numbered(7))
    assert len(run.step()) == 6, "there are more than the least, and the most still holds"
    assert run.step() == []
    run.stop()
    hasty = StreamRun({**patient, "maxTriggerDelay": "0ms"}, start=run.start)
    assert len(hasty.step()) == 4
    hasty.stop()


def test_available_now_ends_where_the_topic_ended_when_it_began(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(10))
    run = StreamRun(
        to(
            subscribe=topic,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=4,
            minOffsetsPerTrigger=3,
        )
    )
    run.planner.prepareForTriggerAvailableNow()
    send(client, topic, numbered(5, 10))
    rows = []
    while found := run.step():
        assert len(found) <= 4
        rows += found
    assert values_of(rows) == numbered(10), "a run that must end waits for no least"
    assert run.planner.reportLatestOffset() == {topic: {"0": 15}}
    run.stop()


def test_the_latest_offset_is_reported_beside_a_limit(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(9))
    run = StreamRun(to(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2))
    assert run.planner.reportLatestOffset() is None
    assert run.planner.latestOffset(run.start, ReadMaxRows(2)) == run.start
    assert run.planner.reportLatestOffset() == {topic: {"0": 9}}, "beside the empty first batch too"
    run.step()
    assert run.start == {topic: {"0": 2}}
    assert run.planner.reportLatestOffset() == {topic: {"0": 9}}
    run.stop()


def test_new_partitions_are_found_while_running(client: Client, topic: str, to: Options) -> None:
    run = StreamRun(to(subscribe=topic))
    assert run.step() == []
    client.admin.create_partitions({topic: 3})
    send(client, topic, numbered(4), partition=2)
    assert values_of(run.step()) == numbered(4), "from its start, though the query began at the end"
    assert run.start == {topic: {"0": 0, "1": 0, "2": 4}}
    run.stop()


def test_new_partitions_are_found_under_a_limit(client: Client, topic: str, to: Options) -> None:
    run = StreamRun(to(subscribe=topic, maxOffsetsPerTrigger=3))
    assert run.step() == []
    client.admin.create_partitions({topic: 2})
    send(client, topic, numbered(4), partition=1)
    assert values_of(run.step()) == numbered(3)
    assert values_of(run.step()) == numbered(1, 3)
    run.stop()


def test_new_topics_of_a_pattern_are_found_while_running(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    first = make_topic("found")
    run = StreamRun(to(subscribePattern=f"{first}.*"))
    assert run.step() == []
    other = make_topic(f"{first}-too")
    send(client, other, numbered(2))
    assert values_of(run.step()) == numbered(2)
    run.stop()


def test_a_new_partition_that_lost_its_first_records_is_reported(
    client: Client, topic: str, to: Options, caplog: pytest.LogCaptureFixture
) -> None:
    for fail in ("true", "false"):
        run = StreamRun(to(subscribe=topic, failOnDataLoss=fail), start={topic: {"0": 0}})
        if fail == "true":
            client.admin.create_partitions({topic: 2})
            send(client, topic, numbered(5), partition=1)
            client.admin.delete_records({TopicPartition(topic, 1): 2})
            with pytest.raises(DataLoss, match=f"new partition {topic}-1 starts at offset 2"):
                run.step()
        else:
            with caplog.at_level(logging.WARNING):
                assert values_of(run.step()) == numbered(3, 2)
            assert "starts at offset 2 instead of 0" in caplog.text
        run.stop()


def test_a_topic_that_left_the_pattern_is_reported(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    kept = make_topic("kept")
    lost = make_topic(f"{kept}-lost")
    send(client, lost, numbered(2))
    options = to(subscribePattern=f"{kept}.*", startingOffsets="earliest")
    run = StreamRun(options)
    run.step()
    client.admin.delete_topics([lost])
    send(client, kept, numbered(1))
    with pytest.raises(DataLoss, match=f"partition {lost}-0 is gone"):
        run.step()
    lenient = StreamRun({**options, "failOnDataLoss": "false"}, start=run.start)
    assert values_of(lenient.step()) == numbered(1)
    assert lenient.start == {kept: {"0": 1}}
    run.stop()
    lenient.stop()


def test_a_topic_that_was_deleted_is_named(client: Client, topic: str, to: Options) -> None:
    options = to(subscribe=topic, fetchOffset__numRetries=1, fetchOffset__retryIntervalMs=1)
    run = StreamRun(options)
    assert run.step() == []
    client.admin.delete_topics([topic])
    with pytest.raises(HeadraceError, match=f"'{topic}' does not exist"):
        run.step()
    run.stop()


def test_a_topic_that_was_made_anew_is_reported(client: Client, topic: str, to: Options) -> None:
    send(client, topic, numbered(8))
    options = to(subscribe=topic, startingOffsets="earliest")
    run = StreamRun(options)
    run.step()
    client.admin.delete_topics([topic])
    client.admin.create_topics([NewTopic(topic, 1, 1)])
    send(client, topic, numbered(3, 100))
    for _ in range(2):
        with pytest.raises(DataLoss, match=f"topic '{topic}' was deleted and made anew"):
            run.step()
    restarted = StreamRun(options, start=run.start)
    with pytest.raises(DataLoss, match=r"ends at offset 3, before 8 .* made anew"):
        restarted.step()
    restarted.stop()
    lenient = StreamRun({**options, "failOnDataLoss": "false"}, start=run.start)
    assert lenient.step() == []
    assert lenient.start == {topic: {"0": 3}}
    send(client, topic, numbered(2, 200))
    assert values_of(lenient.step()) == numbered(2, 200)
    run.stop()
    lenient.stop()


def test_a_topic_made_anew_that_is_longer_already_is_reported(
    client: Client, topic: str, to: Options, caplog: pytest.LogCaptureFixture
) -> None:
    """Its offsets tell nothing: those that were read exist again, with other records."""
    send(client, topic, numbered(8))
    options = to(subscribe=topic, startingOffsets="earliest")
    strict = StreamRun(options)
    lenient = StreamRun({**options, "failOnDataLoss": "false"})
    assert values_of(strict.step()) == values_of(lenient.step()) == numbered(8)
    client.admin.delete_topics([topic])
    client.admin.create_topics([NewTopic(topic, 1, 1)])
    send(client, topic, numbered(20, 100))
    with pytest.raises(DataLoss, match=f"topic '{topic}' was deleted and made anew"):
        strict.step()
    with caplog.at_level(logging.WARNING):
        assert values_of(lenient.step()) == numbered(12, 108)
    assert "made anew" in caplog.text
    strict.stop()
    lenient.stop()


@pytest.mark.parametrize("kind", ["subscribe", "assign"])
def test_a_query_that_may_lose_goes_on_without_a_deleted_topic(
    client: Client, make_topic: TopicMaker, to: Options, kind: str
) -> None:
    kept, lost = make_topic("kept"), make_topic("lost")
    send(client, kept, numbered(2))
    send(client, lost, numbered(2, 50))
    named = f"{kept},{lost}" if kind == "subscribe" else json.dumps({kept: [0], lost: [0]})
    options = to(
        **{kind: named},
        startingOffsets="earliest",
        failOnDataLoss="false",
        fetchOffset__numRetries=0,
    )
    run = StreamRun(options)
    assert len(run.step()) == 4
    client.admin.delete_topics([lost])
    send(client, kept, numbered(1, 2))
    run.planner.prepareForTriggerAvailableNow()
    restarted = StreamRun(options, start=run.start)
    assert values_of(run.step()) == values_of(restarted.step()) == numbered(1, 2)
    assert run.start == restarted.start == {kept: {"0": 3}}
    run.stop()
    restarted.stop()
    with pytest.raises(HeadraceError, match=f"'{lost}' does not exist"):
        StreamRun(options)


def test_retention_that_overtakes_a_stream_is_reported(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, numbered(10))
    options = to(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    run = StreamRun(options)
    run.step()
    client.admin.delete_records({TopicPartition(topic, 0): 7})
    with pytest.raises(DataLoss, match=r"offsets 2 to 3 .* are gone"):
        run.step()
    lenient = StreamRun({**options, "failOnDataLoss": "false"}, start=run.start)
    rows = []
    for _ in range(4):
        rows += lenient.step()
    assert values_of(rows) == numbered(3, 7), "what is left comes once, nothing comes twice"
    run.stop()
    lenient.stop()


def test_a_batch_that_runs_again_reads_the_same(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        send(client, topic, numbered(10, partition * 10), partition=partition)
    options = to(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=12)
    run = StreamRun(options)
    start = run.start
    first = run.step()
    send(client, topic, numbered(10, 100), partition=1)
    again = stream_reader(options)
    tasks = again.partitions(start, run.start)
    assert [row for task in tasks for b in again.read(task) for row in b.to_pylist()] == first
    run.stop()


def test_finished_offsets_are_published_to_a_group_so_that_lag_can_be_seen(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=2)
    group = f"lag-of-{topic}"
    send(client, topic, numbered(5))
    send(client, topic, numbered(3), partition=1)
    options = to(
        subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=4, commitGroup=group
    )

    def lag() -> list[int | None]:
        found = client.admin.group_lag(group)
        return [each.lag for each in sorted(found, key=lambda one: one.partition)]

    run = StreamRun(options)
    run.planner.prepareForTriggerAvailableNow()
    run.step()
    assert lag() == [5, 3], "what the first batch has read is not finished yet"
    run.step()
    assert lag() == [3, 2]
    while run.step():
        pass
    assert lag() == [0, 0], "the last batch too, for which Spark never calls commit"
    run.stop()


def test_offsets_of_a_stream_that_waits_are_published_again_before_they_expire(
    client: Client, topic: str, to: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, place = f"waits-{topic}", TopicPartition(topic, 0)
    send(client, topic, numbered(5))
    run = StreamRun(to(subscribe=topic, startingOffsets="earliest", commitGroup=group))
    run.step()
    run.step()
    assert client.admin.committed_offsets(group)[place].offset == 5
    client.admin.alter_offsets(group, {place: 1})
    run.step()
    assert client.admin.committed_offsets(group)[place].offset == 1, "not at every trigger"
    monkeypatch.setattr(source, "_COMMIT_AGAIN_MS", 0)
    run.step()
    assert client.admin.committed_offsets(group)[place].offset == 5
    run.stop()


def test_a_group_that_others_read_for_is_refused_at_once(
    client: Client, topic: str, to: Options
) -> None:
    group = f"taken-{topic}"
    with client.consumer(group) as member:
        member.subscribe([topic])
        while not member.assignment:
            member.poll(timeout_ms=200)
        run = StreamRun(to(subscribe=topic, startingOffsets="earliest", commitGroup=group))
        with pytest.raises(HeadraceError, match="has members"):
            run.step()
        run.stop()


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_query_whose_group_is_further_than_itself_has_lost_its_checkpoint(
    client: Client, topic: str, to: Options, start: str
) -> None:
    group = f"lost-{topic}"
    send(client, topic, numbered(6))
    options = to(subscribe=topic, startingOffsets="earliest", commitGroup=group)
    for run in (StreamRun(options), StreamRun(options)):  # nothing is finished: nothing is lost
        run.planner.latestOffset(run.start, ReadAllAvailable())
        run.stop()
    while run.step():
        pass
    run.stop()
    send(client, topic, numbered(2, 6))
    anew = StreamRun({**options, "startingOffsets": start})
    with pytest.raises(CheckpointLost, match=f"has finished {topic}-0 up to offset 6") as refused:
        anew.step()
    anew.stop()
    said = str(refused.value)
    advice = said[said.index("startingOffsets=") + len("startingOffsets=") : said.index("}}") + 2]
    advised = StreamRun({**options, "startingOffsets": advice})
    assert values_of(advised.step()) == numbered(2, 6)
    advised.stop()


def test_small_partitions_of_a_stream_share_tasks(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic = make_topic(partitions=16)
    for partition in range(16):
        send(client, topic, numbered(1), partition=partition)
    run = StreamRun(to(subscribe=topic, startingOffsets="earliest", parallelism=2))
    assert len(run.step()) == 16
    assert run.tasks == 2
    run.stop()


def test_offsets_are_asked_for_again_after_a_failure(to: Options) -> None:
    """A planner outlives broker restarts: a lost connection is no lost query."""
    with Broker() as broker:
        name = broker.create_topic("again")
        options = {
            **to(subscribe=name, fetchOffset__numRetries=5, fetchOffset__retryIntervalMs=10),
            "kafka.bootstrap.servers": broker.bootstrap_servers,
        }
        run = StreamRun(options)
        assert run.step() == []
        broker.restart()
        with Client(broker.bootstrap_servers) as client:
            send(client, name, numbered(2))
        assert values_of(run.step()) == numbered(2)
        run.stop()
