"""Leader epochs: where each began, and where it ended."""

import pytest

from headrace.core.ids import LeaderEpoch, Offset
from headrace.log.leader_epochs import UNDEFINED, LeaderEpochs
from tests.support.logs import simulated_disk


def cache(*entries: tuple[int, int]) -> LeaderEpochs:
    return LeaderEpochs((LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


def test_an_epoch_without_records_gives_way_to_the_next() -> None:
    epochs = cache((1, 0))
    epochs.start_epoch(LeaderEpoch(2), Offset(10))
    epochs.start_epoch(LeaderEpoch(3), Offset(10))
    assert epochs.entries == ((1, 0), (3, 10))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (0, (0, 5)),  # older than all known: itself, and where the known ones begin
        (2, (2, 20)),
        (3, (2, 20)),  # unknown in between: the one below it
        (4, (4, 33)),  # the latest: the log's end
        (5, UNDEFINED),
        (-1, UNDEFINED),
    ],
)
def test_an_epoch_ends_where_the_next_begins(asked: int, answer: tuple[int, int]) -> None:
    epochs = cache((2, 5), (4, 20))
    assert epochs.end_offset_for(LeaderEpoch(asked), Offset(33)) == answer


def test_nothing_is_known_of_an_empty_log() -> None:
    assert cache().end_offset_for(LeaderEpoch(0), Offset(0)) == UNDEFINED


def test_an_offset_has_the_epoch_that_began_at_or_before_it() -> None:
    epochs = cache((2, 5), (4, 20))
    found = [epochs.epoch_for_offset(Offset(offset)) for offset in (4, 5, 19, 20, 99)]
    assert found == [-1, 2, 2, 4, 4]


def test_truncation_forgets_epochs_from_its_end() -> None:
    epochs = cache((2, 5), (4, 20))
    epochs.truncate_end(Offset(20))
    assert epochs.entries == ((2, 5),)
    assert epochs.latest == 2
    assert epochs.changed


def test_deleting_records_moves_the_start_of_the_epoch_they_were_in() -> None:
    epochs = cache((2, 5), (4, 20), (6, 30))
    epochs.truncate_start(Offset(25))
    assert epochs.entries == ((4, 25), (6, 30))


def test_epochs_survive_a_round_trip_in_kafkas_format() -> None:
    disk = simulated_disk()
    cache((2, 5), (4, 20)).store(disk, "")
    assert disk.read_file("/leader-epoch-checkpoint") == b"0\n2\n2 5\n4 20\n"
    loaded = LeaderEpochs.load(disk, "")
    assert loaded is not None
    assert loaded.entries == ((2, 5), (4, 20))


@pytest.mark.parametrize("rows", [b"4 20\n2 5", b"2 20\n4 5", b"x 1\n2 3"])
def test_a_table_that_makes_no_sense_is_not_believed(rows: bytes) -> None:
    disk = simulated_disk()
    disk.write_file("/leader-epoch-checkpoint", b"0\n2\n" + rows + b"\n")
    assert LeaderEpochs.load(disk, "") is None
