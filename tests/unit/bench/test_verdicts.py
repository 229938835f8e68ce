"""A bar is met, missed, excused or not measured; ratios go pair by pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.machine import Machine, fdatasync_ms, file_system_of
from bench.percentiles import percentile
from bench.readings import HEADRACE, KAFKA, OS, Readings, spread
from bench.report import RunConditions, markdown
from bench.rows import Row, judge, rows
from bench.sides import Side, in_turn
from bench.wire import produce_request, record_batch
from headrace.protocol.frames import decode_request_header
from headrace.protocol.messages.produce import ProduceRequest
from headrace.protocol.records.header import crc_matches, parse_header

_MACHINE = Machine("ext4", 0.15, 0.4, "a processor", 2, 24, "3.11")
_RATE = Row("rate", "rate: MB/s", 0.95, at_least=True, ratio=True, client_bound_by="rate: share")


def _readings(**values: list[float]) -> Readings:
    readings = Readings()
    for side, taken in values.items():
        for value in taken:
            readings.add("rate: MB/s", side, value)
    return readings


def test_a_ratio_is_taken_pair_by_pair() -> None:
    readings = _readings(kafka=[100, 200, 50], headrace=[110, 180, 100])
    assert readings.ratios("rate: MB/s", HEADRACE) == [1.1, 0.9, 2.0]
    verdict = judge(_RATE, readings)
    assert verdict.value is not None
    assert (verdict.value.median, verdict.value.lowest, verdict.value.highest) == (1.1, 0.9, 2.0)
    assert verdict.met is True


def test_a_missed_bar_is_missed_unless_the_client_was_the_limit() -> None:
    readings = _readings(kafka=[100], headrace=[80])
    assert judge(_RATE, readings).met is False
    readings.add("rate: share", HEADRACE, 0.97)
    excused = judge(_RATE, readings)
    assert excused.met is True
    assert "97%" in excused.note


def test_without_kafka_a_ratio_is_not_measured_and_a_value_still_is() -> None:
    readings = _readings(headrace=[80])
    assert judge(_RATE, readings).met is None
    absolute = Row("value", "rate: MB/s", 90, at_least=False, ratio=False)
    assert judge(absolute, readings).met is True


def test_every_side_is_second_as_often_as_first() -> None:
    sides = [Side(name, None, None) for name in (KAFKA, HEADRACE)]  # type: ignore[arg-type]  # never started
    order = [[side.name for side in turn] for _, turn in in_turn(sides, 4)]
    assert order == [[KAFKA, HEADRACE], [HEADRACE, KAFKA]] * 2


def test_bars_of_what_waits_for_the_disk_follow_the_disk() -> None:
    durable = [
        row for row in rows(_MACHINE, Readings()) if row.title.startswith("one produce acks=all")
    ]
    assert [row.bar for row in durable] == pytest.approx([0.5, 0.5])
    readings = Readings()
    measure = "end to end 1,000/s acks=all: p50 ms"
    readings.add(measure, OS, 0.3)
    readings.add(measure, HEADRACE, 0.6)
    (row,) = [each for each in rows(_MACHINE, readings) if each.measure == measure]
    assert row.bar == pytest.approx(0.525)
    assert judge(row, readings).met is False


def test_a_row_without_a_bar_is_told_and_not_judged() -> None:
    readings = _readings(kafka=[100], headrace=[80])
    verdict = judge(Row("rate", "rate: MB/s", None, at_least=True, ratio=True), readings)
    assert verdict.met is None
    assert verdict.value is not None


def test_the_report_names_every_row_and_why_kafka_is_missing() -> None:
    verdicts = [judge(row, Readings()) for row in rows(_MACHINE, Readings())]
    about = RunConditions(_MACHINE, 5, (0, 0, 0), (0, 0, 0), {}, "no Java here", short=False)
    page = markdown(verdicts, Readings(), about)
    assert "no Java here" in page
    assert all(f"| {row.title} |" in page for row in rows(_MACHINE, Readings()))


def test_percentiles_and_spread() -> None:
    values = [float(number) for number in range(1, 102)]
    assert (percentile(values, 50), percentile(values, 99), percentile([7.0], 99)) == (51, 100, 7)
    assert spread([]) is None


def test_the_hand_packed_produce_is_what_the_codec_reads() -> None:
    frame = produce_request("topic", 3, -1, record_batch(b"x" * 300, 5))[4:]
    header = decode_request_header(frame)
    request = ProduceRequest.decode(frame, header.api_version, header.body_position)
    partition = request.topic_data[0].partition_data[0]
    assert (request.acks, request.topic_data[0].name, partition.index) == (-1, "topic", 3)
    assert partition.records is not None
    batch = memoryview(partition.records)
    assert parse_header(batch).record_count == 5
    assert crc_matches(batch, 0, parse_header(batch))


def test_the_disk_is_measured_and_named(tmp_path: Path) -> None:
    assert len(fdatasync_ms(tmp_path, 3)) == 3
    assert file_system_of(tmp_path) != "unknown"
    assert not list(tmp_path.iterdir())
