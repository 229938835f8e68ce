"""Text tables: whole or absent, never half understood."""

import pytest

from headrace.core.ids import Offset, TopicPartition
from headrace.log.checkpoints import (
    encode_offsets,
    find_offsets,
    parse_properties,
    read_offsets,
    replace_file,
)
from tests.simulation.inodes import KEEP_NAMES
from tests.support.logs import simulated_disk

PATH = "/recovery-point-offset-checkpoint"
OFFSETS = {
    TopicPartition("orders", 0): Offset(1042),
    TopicPartition("with-dashes.and_dots", 12): Offset(0),
}


def test_offsets_are_written_in_kafkas_format() -> None:
    assert encode_offsets(OFFSETS) == b"0\n2\norders 0 1042\nwith-dashes.and_dots 12 0\n"


def test_offsets_survive_a_round_trip() -> None:
    disk = simulated_disk()
    replace_file(disk, PATH, encode_offsets(OFFSETS), durable=True)
    assert read_offsets(disk, PATH) == OFFSETS


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00\xff\xfe",
        b"1\n1\norders 0 5\n",
        b"0\n2\norders 0 5\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders zero 5\n",
        b"0\n1\norders 0 -5\n",
        b"0\nmany\norders 0 5\n",
    ],
)
def test_garbage_counts_as_absent_and_is_reported(
    garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = simulated_disk()
    disk.write_file(PATH, garbage)
    assert find_offsets(disk, PATH) is None
    assert read_offsets(disk, PATH) == {}
    assert PATH in caplog.text


def test_a_missing_table_is_absent_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    assert find_offsets(simulated_disk(), PATH) is None
    assert caplog.text == ""


def test_a_durable_replacement_is_never_empty_after_a_power_cut() -> None:
    disk = simulated_disk()
    disk.sync_directory("/")
    replace_file(disk, PATH, b"0\n0\n", durable=True)
    assert disk.after_power_cut(KEEP_NAMES).read_file(PATH) == b"0\n0\n"


def test_properties_skip_comments() -> None:
    assert parse_properties(b"#\n#Mon Nov 16\nversion=1\nnode.id = 3\nnoise\n") == {
        "version": "1",
        "node.id": "3",
    }
