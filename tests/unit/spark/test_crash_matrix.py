"""The crash matrix: which test holds which fault against which sink.

Sets of offsets are compared in all of them, so that what is lost and what is there twice is
counted. Points of a batch are in `tests.support.spark_faults`; that the check can fail is tested in
`test_crash_check.py`. Most run in the long form alone (`make test-long`).
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

_TESTS = Path(__file__).resolve().parents[2] / "integration" / "spark"
_COMPARISONS = ("compare(", "is_whole", "Counter(")  # offsets, an archive's findings, counts

MATRIX: dict[str, dict[str, list[str]]] = {
    "driver killed before and after each point where something is written down": {
        "test_crashes.py": [
            "test_a_driver_killed_in_a_batch_leaves_each_row_in_the_table_once",
            "test_a_driver_killed_after_a_batch_is_written_down_does_not_run_it_again",
            "test_a_driver_killed_in_a_batch_loses_no_row_on_its_way_to_a_topic",
            "test_a_driver_killed_in_a_batch_leaves_each_row_in_parquet_once",
            "test_a_driver_killed_after_parquet_is_committed_does_not_write_it_again",
            "test_a_driver_killed_in_its_first_batch_does_not_forget_where_latest_was",
        ],
    },
    "task fails and is run again": {
        "test_sinks.py": [
            "test_trap_2_and_3_a_table_has_each_row_once_wherever_a_batch_fails",
            "test_a_topic_sink_loses_nothing_when_a_task_is_tried_again",
        ],
        "test_crashes.py": ["test_a_task_that_fails_while_it_reads_is_run_again_whole"],
    },
    "worker killed": {
        "test_cluster.py": [
            "test_a_worker_killed_in_the_middle_leaves_each_row_in_the_table_once",
            "test_a_worker_killed_in_the_middle_costs_no_row_on_its_way_to_a_topic",
            "test_a_worker_killed_in_the_middle_leaves_each_row_in_parquet_once",
            "test_a_worker_killed_in_the_middle_changes_no_count",
        ],
    },
    "broker restarted during a batch": {
        "test_crashed_brokers.py": [
            "test_a_broker_restarted_under_a_batch_costs_no_row",
            "test_a_broker_restarted_under_a_stream_leaves_each_row_in_files_once",
            "test_a_broker_restarted_under_a_stream_costs_no_row_from_topic_to_topic",
        ],
    },
    "checkpoint lost": {
        "test_lost_and_malformed.py": [
            "test_a_lost_checkpoint_is_refused_by_the_table_and_the_way_on_is_told",
            "test_a_lost_checkpoint_is_refused_by_its_group_whatever_the_sink",
            "test_sparks_own_parquet_sink_needs_a_group_to_notice_a_lost_checkpoint",
        ],
    },
    "topic deleted and made anew": {
        "test_lost_and_malformed.py": [
            "test_a_topic_made_anew_stops_a_query_and_leaves_the_table_alone"
        ],
    },
    "retention overtakes the reader": {
        "test_lost_and_malformed.py": [
            "test_retention_that_overtakes_a_query_stops_it_or_costs_only_what_it_took"
        ],
    },
    "malformed payloads": {
        "test_lost_and_malformed.py": [
            "test_every_record_is_a_row_or_a_dead_letter_and_no_record_is_both"
        ],
    },
    "schema mismatch": {
        "test_lost_and_malformed.py": [
            "test_a_schema_that_changed_is_refused_before_anything_is_written"
        ],
    },
}


@pytest.mark.parametrize("fault", MATRIX)
def test_every_fault_of_the_matrix_has_tests_that_exist(fault: str) -> None:
    for file, names in MATRIX[fault].items():
        tree = ast.parse((_TESTS / file).read_text())
        there = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        assert set(names) <= set(there), (file, set(names) - set(there))
        for name in names:
            code = ast.unparse(there[name])
            assert any(word in code for word in _COMPARISONS), f"{name} compares nothing"
