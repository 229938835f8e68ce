"""A shard out of its log."""

import pytest

from headrace.protocol.records.encode import ControlType
from tests.support.coordinator import RegisterDecoder, Registers
from tests.support.hand_made_log import HandMadeLog


def test_markers_and_the_producers_of_transactions_come_to_the_shard() -> None:
    log = HandMadeLog()
    log.records((b"k", b"plain"))
    log.records((b"k", b"in a transaction"), producer_id=7)
    log.control(ControlType.COMMIT, 7, epoch=2)
    log.control(ControlType.ABORT, 9)
    log.control(ControlType.LEADER_CHANGE)
    log.records((b"k", b"plain again"), producer_id=8, is_transactional=False)
    shard = Registers()
    log.load_into(shard, RegisterDecoder())
    assert shard.producers == [-1, 7, -1]
    assert shard.markers == [(7, 2, True), (9, 0, False)]
    assert shard.texts == {"k": "plain again"}


def test_a_record_that_cannot_be_read_takes_no_other_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = HandMadeLog()
    log.records((b"\xff", b"not a text"), (b"k", b"text"))
    shard = Registers()
    log.load_into(shard, RegisterDecoder())
    assert shard.texts == {"k": "text"}
    assert "skipped a record: partition=t-0 offset=0" in caplog.text
