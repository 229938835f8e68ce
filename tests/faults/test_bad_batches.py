"""Bad batches through a real connection: Kafka's code for each, and nothing of them in the log.

What header checks let through on a plain topic is tried too: recovery, fetch and compaction
must survive a batch whose inside makes no sense.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import ErrorCode
from headrace.log.compaction.checkpoint import CLEANER_OFFSETS
from headrace.node.system import RealClock
from headrace.protocol.records.header import iterate_headers, parse_header
from headrace.protocol.records.validate import BatchRules
from headrace.testing import Broker
from tests.faults.load import wait_until
from tests.faults.wire import LATEST, Wire
from tests.support.bad_batches import ALL_CASES, NOW, RECORD_CASES, Case
from tests.support.batches import FIXED_TIMESTAMP_MS, Batch


@pytest.fixture(scope="module", autouse=True)
def _stopped_clock() -> Iterator[None]:
    """The cases' timestamps are right or wrong at one moment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RealClock, "now_ms", lambda _: NOW)
        yield


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture(scope="module")
def strict() -> Iterator[Broker]:
    with Broker(settings={"log.validate.records": "true"}) as started:
        yield started


def configs(rules: BatchRules) -> dict[str, str]:
    """A topic with these rules."""
    return {
        "max.message.bytes": str(rules.max_message_bytes),
        "message.timestamp.type": "LogAppendTime" if rules.append_time else "CreateTime",
        "message.timestamp.before.max.ms": str(rules.timestamp_before_max_ms),
        "message.timestamp.after.max.ms": str(rules.timestamp_after_max_ms),
        "cleanup.policy": "compact" if rules.keys_required else "delete",
    }


@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_the_answer_is_kafkas_and_nothing_bad_is_appended(
    case: Case, acks: int, plain: Broker, strict: Broker
) -> None:
    broker = strict if case.rules.each_record and not case.rules.keys_required else plain
    topic = f"case-{ALL_CASES.index(case)}-{acks}"
    broker.create_topic(topic, configs=configs(case.rules))
    with Wire(broker.port) as wire:
        answer = wire.produce(topic, case.content, acks=acks, version=case.version)
        assert ErrorCode(answer.error_code) is case.code
        if case.version >= 8:
            assert tuple(each.batch_index for each in answer.record_errors) == case.bad_records
        expected = 0 if case.code else parse_header(case.content).record_count
        assert wire.offset(topic, LATEST) == expected
        if not case.code:
            assert len(wire.records(topic)) == expected
        after = wire.produce(topic, Batch(base_timestamp_ms=NOW).encode(), acks=acks)
        if case.rules.max_message_bytes > 100:
            assert (after.error_code, after.base_offset) == (ErrorCode.NONE, expected)


def test_one_bad_partition_of_a_request_leaves_its_neighbours_alone(plain: Broker) -> None:
    plain.create_topic("three", partitions=3)
    with Wire(plain.port) as wire:
        good = Batch(base_timestamp_ms=NOW).encode()
        bad = good[:-1] + b"x"
        answers = wire.produce_all("three", {0: good, 1: bad, 2: good})
        codes = [ErrorCode(each.error_code) for each in answers]
        assert codes == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE]
        ends = [wire.offset("three", LATEST, partition=index) for index in range(3)]
    assert ends == [1, 0, 1]


DEEPLY_WRONG = [case for case in RECORD_CASES if case.code and not case.rules.keys_required]
# Compaction reads keys and lengths only: for it these are records without a key, which a
# compacted topic does not keep, and one whose key has a newer value.
READABLE = (
    "a negative header count",
    "more headers than bytes",
    "a header without key",
    "offset deltas with a gap",
)
UNREADABLE = {case.content[61:] for case in DEEPLY_WRONG if case.name not in READABLE}
SEGMENT_BYTES = 2000


def test_header_checks_let_these_through_and_everything_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also after a kill, and when the topic is compacted afterwards."""
    settings = {
        "log.cleaner.backoff.ms": "20",
        "log.flush.offset.checkpoint.interval.ms": "20",
    }
    broker = Broker(data_dir=tmp_path, settings=settings)
    with broker:
        broker.create_topic("t", configs={"internal.segment.bytes": str(SEGMENT_BYTES)})
        with Wire(broker.port) as wire:
            sent = send_good_and_bad(wire)
            assert fetched(wire) == sent
        broker.kill()
        broker.start()
        with Wire(broker.port) as wire:
            assert fetched(wire) == sent
            end = wire.offset("t", LATEST)
            # A search by time looks at records: it answers, or says what is wrong, and goes on.
            for case_time in (0, FIXED_TIMESTAMP_MS, FIXED_TIMESTAMP_MS + 1, NOW + 10**6):
                assert wire.find("t", case_time).error_code in (0, ErrorCode.CORRUPT_MESSAGE)
            compact(wire, tmp_path)
            assert wire.offset("t", LATEST) == end
            left = fetched(wire)
            # What cannot be read stays as it is; of the readable ones the newest, as always.
            assert [content for content in left if content in UNREADABLE] == [
                content for content in sent if content in UNREADABLE
            ]
            assert left[-1] == sent[-1]
            same = [content for content in left if b"same" in content]
            assert len(same) < len(DEEPLY_WRONG)
            following = wire.produce("t", Batch(base_timestamp_ms=NOW).encode())
            assert (following.error_code, following.base_offset) == (ErrorCode.NONE, end)
    assert "after a fault" not in caplog.text
    assert "Traceback" not in caplog.text


def send_good_and_bad(wire: Wire) -> list[bytes]:
    """A good batch with the same key before and after each bad one; what lies behind headers."""
    contents = []
    for number, case in enumerate(DEEPLY_WRONG):
        good = Batch([(b"same", b"%d" % number * 60)], base_timestamp_ms=NOW).encode()
        contents += [good, case.content]
    contents.append(Batch([(b"same", b"last")], base_timestamp_ms=NOW).encode())
    for content in contents:
        answer = wire.produce("t", content)
        assert answer.error_code == ErrorCode.NONE, answer
    return [content[61:] for content in contents]


def fetched(wire: Wire) -> list[bytes]:
    """Every batch without its header."""
    at, found = 0, list[bytes]()
    while True:
        data = bytes(wire.fetch("t", at).records or b"")
        if not data:
            return found
        for position, header in iterate_headers(data):
            found.append(data[position + 61 : position + header.size])
            at = header.last_offset + 1


def compact(wire: Wire, data_dir: Path) -> None:
    """Have the topic compacted from now on, and wait until it has been."""
    wire.alter("t", {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0"})
    checkpoint = data_dir / CLEANER_OFFSETS
    wait_until(lambda: checkpoint.exists() and "t 0 " in checkpoint.read_text(), "no compaction")
