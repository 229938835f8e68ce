"""Every option has a test of what it does: the table below, held against the options themselves.

A test counts if it exists and its code names the option. Refusals of wrong values are tested in
`test_options.py` and `test_sink_options.py` and do not count here.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from headrace.spark import connection, sink_options
from headrace.spark.lake import TABLE_NAMES
from headrace.spark.options import SOURCE_NAMES
from headrace.spark.sink_options import TOPIC_SINK_NAMES
from headrace.spark.upsert import UPSERT_NAMES

_TESTS = Path(__file__).resolve().parents[2]
_FILES = {
    "batch": "integration/spark/test_readers_batch.py",
    "stream": "integration/spark/test_readers_stream.py",
    "typed": "integration/spark/test_readers_typed.py",
    "gaps": "integration/spark/test_readers_gaps.py",
    "sinks": "integration/spark/test_sinks.py",
    "lost": "integration/spark/test_lost_and_malformed.py",
    "options": "unit/spark/test_options.py",
    "sink options": "unit/spark/test_sink_options.py",
    "lake": "unit/spark/test_lake.py",
    "watermarks": "unit/spark/test_watermarks.py",
    "merges": "unit/spark/test_upsert.py",
    "upsert": "integration/spark/test_upsert.py",
}

SOURCE: dict[str, tuple[str, str]] = {
    "assign": ("batch", "test_only_assigned_partitions_are_read"),
    "subscribe": ("batch", "test_several_topics_are_read_as_one"),
    "subscribePattern": ("stream", "test_new_topics_of_a_pattern_are_found_while_running"),
    "startingOffsets": ("batch", "test_offsets_bound_a_read_and_must_name_every_partition"),
    "endingOffsets": ("batch", "test_offsets_bound_a_read_and_must_name_every_partition"),
    "startingTimestamp": ("batch", "test_times_bound_a_read"),
    "endingTimestamp": ("batch", "test_times_bound_a_read"),
    "startingOffsetsByTimestamp": ("batch", "test_times_of_each_partition_bound_a_read"),
    "endingOffsetsByTimestamp": ("batch", "test_times_of_each_partition_bound_a_read"),
    "startingOffsetsByTimestampStrategy": (
        "batch",
        "test_a_start_later_than_every_record_is_an_error_or_the_end",
    ),
    "failOnDataLoss": ("stream", "test_retention_that_overtakes_a_stream_is_reported"),
    "maxOffsetsPerTrigger": ("stream", "test_a_trigger_takes_no_more_than_its_limit"),
    "minOffsetsPerTrigger": (
        "stream",
        "test_a_trigger_waits_for_its_least_until_its_delay_is_over",
    ),
    "maxTriggerDelay": ("stream", "test_a_trigger_waits_for_its_least_until_its_delay_is_over"),
    "minPartitions": ("batch", "test_small_partitions_share_tasks_unless_more_are_wanted"),
    "maxRecordsPerPartition": (
        "batch",
        "test_small_partitions_share_tasks_unless_more_are_wanted",
    ),
    "parallelism": ("stream", "test_small_partitions_of_a_stream_share_tasks"),
    "includeHeaders": ("batch", "test_every_column_of_a_record_comes_back"),
    "groupIdPrefix": ("batch", "test_a_group_names_the_client_and_is_not_joined"),
    "fetchOffset.numRetries": ("stream", "test_offsets_are_asked_for_again_after_a_failure"),
    "fetchOffset.retryIntervalMs": ("stream", "test_offsets_are_asked_for_again_after_a_failure"),
    "kafkaConsumer.pollTimeoutMs": ("batch", "test_a_read_that_hears_nothing_gives_up_in_time"),
    "commitGroup": (
        "stream",
        "test_finished_offsets_are_published_to_a_group_so_that_lag_can_be_seen",
    ),
    "valueFormat": ("typed", "test_text_values_are_strings"),
    "valueSchema": ("typed", "test_avro_values_are_columns"),
    "deadLetterTopic": (
        "typed",
        "test_bad_records_go_to_the_dead_letter_topic_with_where_they_were",
    ),
    "columns": ("batch", "test_columns_are_pruned"),
    "watermarkCheckpoint": ("watermarks", "test_a_source_hands_the_watermark_to_every_task"),
}
TOPIC: dict[str, tuple[str, str]] = {
    "topic": ("sinks", "test_rows_arrive_with_key_value_headers_and_partition"),
    "delivery": ("sinks", "test_options_are_refused_where_the_job_can_see_it"),
}
TABLE: dict[str, tuple[str, str]] = {
    "path": ("sinks", "test_a_stream_is_archived_by_topic_and_day_checked_and_replayed"),
    "partitionBy": ("sinks", "test_a_stream_is_archived_by_topic_and_day_checked_and_replayed"),
    "otherQueries": (
        "lost",
        "test_a_lost_checkpoint_is_refused_by_the_table_and_the_way_on_is_told",
    ),
    "onceAs": ("lake", "test_a_batch_write_with_a_name_happens_once"),
}
UPSERT: dict[str, tuple[str, str]] = {
    "path": ("upsert", "test_a_batch_is_merged_once_by_its_name"),
    "on": ("upsert", "test_a_batch_is_merged_once_by_its_name"),
    "newestBy": ("upsert", "test_a_batch_is_merged_once_by_its_name"),
    "onceAs": ("upsert", "test_a_batch_is_merged_once_by_its_name"),
}
KAFKA: dict[str, tuple[str, str]] = {
    "isolation.level": ("gaps", "test_committed_reads_leave_out_what_was_aborted"),
    "max.partition.fetch.bytes": ("batch", "test_a_message_larger_than_a_fetch_is_read"),
    "request.timeout.ms": ("batch", "test_a_read_that_hears_nothing_gives_up_in_time"),
    "default.api.timeout.ms": ("batch", "test_a_read_that_hears_nothing_gives_up_in_time"),
    "group.id": ("batch", "test_a_group_names_the_client_and_is_not_joined"),
    "compression.type": ("sinks", "test_rows_are_compressed_as_asked"),
}


@cache
def functions(file: str) -> dict[str, str]:
    """The tests of a file by name, with their code and what decorates them."""
    text = (_TESTS / file).read_text()
    found = {}
    for each in ast.parse(text).body:
        if isinstance(each, ast.FunctionDef):
            first = min([each.lineno, *(mark.lineno for mark in each.decorator_list)])
            found[each.name] = "\n".join(text.splitlines()[first - 1 : each.end_lineno])
    return found


def names_of(code: str, option: str) -> bool:
    """Whether code names an option, as it is or as a keyword argument."""
    return option in code or option.replace(".", "__") in code


@pytest.mark.parametrize(
    ("kind", "names", "table"),
    [
        ("source", SOURCE_NAMES, SOURCE),
        ("topic", TOPIC_SINK_NAMES, TOPIC),
        ("table", TABLE_NAMES, TABLE),
    ],
)
def test_every_option_has_a_test_of_what_it_does(
    kind: str, names: tuple[str, ...], table: dict[str, tuple[str, str]]
) -> None:
    assert set(table) == set(names), kind


@pytest.mark.parametrize(
    ("option", "where"),
    [pair for table in (SOURCE, TOPIC, TABLE, UPSERT, KAFKA) for pair in table.items()],
)
def test_the_tests_of_options_exist_and_name_them(option: str, where: tuple[str, str]) -> None:
    file, test = where
    code = functions(_FILES[file]).get(test)
    assert code is not None, f"{_FILES[file]} has no {test}"
    assert names_of(code, option), f"{test} does not name {option}"


def test_settings_of_the_client_are_named_by_a_test() -> None:
    """All of them reach the client; those of `KAFKA` are also seen to do what they say."""
    code = "".join((_TESTS / _FILES[file]).read_text() for file in ("options", "sink options"))
    keys = {*connection._CONNECTION_KEYS, *connection.FETCH_KEYS, *sink_options._PRODUCER_KEYS}
    assert not {key for key in keys if not names_of(code, key)}


def test_the_options_of_merges_are_named_by_their_tests() -> None:
    code = (_TESTS / _FILES["merges"]).read_text() + (_TESTS / _FILES["upsert"]).read_text()
    assert not [name for name in UPSERT_NAMES if f'"{name}"' not in code and f"{name}=" not in code]
