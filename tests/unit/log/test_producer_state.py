"""What an idempotent producer may send next, and what counts as sent before."""

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.log.producer_snapshot import decode_snapshot, encode_snapshot
from headrace.log.producer_state import ProducerStates
from headrace.protocol.records.header import BatchHeader, parse_header
from tests.support.logs import START_MS, batch

MAX_SEQUENCE = 2**31 - 1
YEAR_2100_MS = 4_102_444_800_000


def header(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    producer_id: int = 7,
    timestamp: int = START_MS,
) -> BatchHeader:
    sent = batch(
        timestamps=[timestamp] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        sequence=sequence,
    )
    return parse_header(sent)


def sent(*batches: tuple[int, int], epoch: int = 0) -> ProducerStates:
    """A producer that sent batches of (first sequence, count), from offset 0 on."""
    states, offset = ProducerStates(), 0
    for sequence, count in batches:
        offset += count
        states.update(header(sequence, count, epoch=epoch), offset - 1)
    return states


def refusal(states: ProducerStates, refused: BatchHeader) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        states.check(refused)
    return caught.value.code


def test_the_next_sequence_is_taken() -> None:
    assert sent((0, 3)).check(header(3)) is None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    assert ProducerStates().check(header(41)) is None


@pytest.mark.parametrize("sequence", [4, 1, 2, MAX_SEQUENCE])
def test_a_gap_or_a_step_back_is_out_of_order(sequence: int) -> None:
    refused = refusal(sent((0, 3)), header(sequence))
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_last_five_batches_are_recognised_with_their_offsets() -> None:
    states = sent(*((n * 2, 2) for n in range(7)))
    for number in range(2, 7):
        found = states.check(header(number * 2, 2))
        assert found is not None
        assert (found.first_offset, found.last_offset) == (number * 2, number * 2 + 1)
    assert refusal(states, header(2, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_part_of_a_sent_batch_is_no_duplicate() -> None:
    assert refusal(sent((0, 3)), header(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_older_epoch_is_refused_even_with_the_right_sequence() -> None:
    assert refusal(sent((0, 1), epoch=3), header(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_begins_at_zero_and_forgets_the_old_batches() -> None:
    states = sent((0, 1), (1, 1))
    assert refusal(states, header(2, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    first = header(0, epoch=1)
    assert states.check(first) is None
    states.update(first, 2)
    assert states.check(header(1, epoch=1)) is None
    assert refusal(states, header(2, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_from_the_largest_to_zero() -> None:
    states = sent((MAX_SEQUENCE, 1))
    assert states.check(header(0)) is None
    straddling = sent((MAX_SEQUENCE - 1, 4))  # ..., MAX, 0, 1
    assert straddling.check(header(2)) is None
    found = straddling.check(header(MAX_SEQUENCE - 1, 4))
    assert found is not None
    assert found.first_sequence == MAX_SEQUENCE - 1


def test_a_producer_that_is_silent_too_long_is_forgotten() -> None:
    states = sent((0, 1))
    assert states.expire(START_MS + 999, 1000) == 0
    assert states.expire(START_MS + 2000, 1000) == 1
    assert states.check(header(17)) is None


def test_a_producer_of_old_timestamps_is_alive_while_it_writes() -> None:
    states = sent((0, 1))
    later = START_MS + 10**9
    assert states.expire(later, 1000) == 0
    states.update(header(1), 1)
    assert states.expire(later + 900, 1000) == 0
    assert states.expire(later + 2000, 1000) == 1


@pytest.mark.parametrize("stamp", [0, START_MS, YEAR_2100_MS])
def test_a_producer_that_was_loaded_lives_on_from_then(stamp: int) -> None:
    """Whatever its records say: nobody knows how long it was silent before."""
    sent_before = ProducerStates()
    sent_before.update(header(0, timestamp=stamp), 0)
    loaded = decode_snapshot(encode_snapshot(sent_before))
    assert loaded is not None
    later = START_MS + 10**9
    assert loaded.expire(later, 1000) == 0
    assert loaded.expire(later + 999, 1000) == 0
    assert loaded.expire(later + 1000, 1000) == 1


@pytest.mark.parametrize("stamp", [-1, 0, START_MS, YEAR_2100_MS])
def test_no_record_says_how_long_its_producer_lives(stamp: int) -> None:
    states = ProducerStates()
    states.update(header(0, timestamp=stamp), 0)
    assert states.expire(START_MS, 1000) == 0
    assert states.expire(START_MS + 999, 1000) == 0
    assert states.expire(START_MS + 1000, 1000) == 1


def test_a_producer_that_wrote_since_the_last_look_is_not_forgotten() -> None:
    """However long ago that look was."""
    states = sent((0, 1))
    states.expire(START_MS, 1000)
    states.update(header(1), 1)
    assert states.expire(START_MS + 300_000, 1000) == 0


def test_an_open_transaction_keeps_its_producer() -> None:
    states = sent((0, 1))
    producer = states.get(7)
    assert producer is not None
    producer.transaction_start = 0
    assert states.expire(START_MS + 10**9, 1000) == 0
    assert states.expire(START_MS + 2 * 10**9, 1000) == 0


def test_a_snapshot_keeps_all_five_batches() -> None:
    states = sent(*((n * 2, 2) for n in range(7)))
    loaded = decode_snapshot(encode_snapshot(states))
    assert loaded is not None
    assert [
        (number, found.first_offset)
        for number in range(2, 7)
        if (found := loaded.check(header(number * 2, 2))) is not None
    ] == [(number, number * 2) for number in range(2, 7)]
    assert loaded.check(header(14)) is None
    assert encode_snapshot(loaded) == encode_snapshot(states)


def test_a_snapshot_has_kafkas_layout() -> None:
    data = encode_snapshot(sent((5, 3)))
    assert data[:2] == b"\x00\x01"
    entry = "0000000000000007000000000007000000000000000200000002"
    entry += f"{START_MS:016x}" + "ffffffff" + "ffffffffffffffff"
    assert data[6:].hex() == "00000001" + entry


@pytest.mark.parametrize("position", range(0, 56, 5))
def test_a_damaged_snapshot_is_not_believed(position: int) -> None:
    data = bytearray(encode_snapshot(sent((0, 1))))
    data[position] ^= 0x40
    assert decode_snapshot(bytes(data)) is None
    assert decode_snapshot(bytes(data[:position])) is None
