"""The metadata log across restarts: snapshots, torn tails, damage."""

import errno
import json
from contextlib import suppress

import pytest

from headrace.controller.commands import CreateTopics, DeleteTopics, TopicToCreate, TopicToDelete
from headrace.core.errors import StartupRefused, StorageError
from headrace.log.partition_metadata import encode_uuid
from headrace.metadata.image import Image
from headrace.metadata.snapshots import SnapshotId, list_snapshots, load_newest
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.simulation.inodes import Fixed
from tests.support.metadata import METADATA, MetadataNode


def create(name: str, partitions: int = 1) -> CreateTopics:
    return CreateTopics((TopicToCreate(name, partitions, 1),))


async def stopped(
    *names: str, snapshot_records_min: int = 1_000_000
) -> MetadataNode[SimulatedFileSystem]:
    """A node that created these topics and stopped."""
    node = MetadataNode(SimulatedFileSystem(), snapshot_records_min=snapshot_records_min)
    await node.join()
    for name in names:
        await node.controller.submit(create(name))
    await node.stop()
    return node


async def stopped_with_two_snapshots() -> MetadataNode[SimulatedFileSystem]:
    """There are topics from before, between and after them; what came first is in them alone."""
    node = await MetadataNode(SimulatedFileSystem(), snapshot_records_min=4).join()
    for number in range(8):
        await node.controller.submit(create(f"t{number}"))
        for _ in range(number):
            await node.controller.submit(create("passing"))
            await node.controller.submit(DeleteTopics((TopicToDelete("passing"),)))
    await node.stop()
    newest, older = list_snapshots(node.disk, METADATA)
    assert 0 < older.end_offset < newest.end_offset <= node.image.offset
    assert "00000000000000000000.log" not in log_files(node.disk)
    return node


def log_files(disk: SimulatedFileSystem) -> list[str]:
    return [name for name in disk.list_directory(METADATA) if name.endswith(".log")]


async def test_a_restart_finds_the_same_image() -> None:
    node = await stopped("a", "b")
    again = MetadataNode(node.disk.after_kill())
    loaded = again.load()
    assert loaded == node.image


async def test_the_quorum_state_names_the_epoch_and_its_leader() -> None:
    node = await stopped()
    state = json.loads(node.disk.read_file(f"{METADATA}/quorum-state"))
    assert state == {
        "leaderId": 0,
        "leaderEpoch": 1,
        "votedId": 0,
        "votedDirectoryId": encode_uuid(node.directory.meta_properties.directory_id),
        "data_version": 1,
    }


@pytest.mark.parametrize("contents", [b"", b"{", b"[]", b'{"leaderEpoch": null}'])
async def test_an_unreadable_quorum_state_still_leads_to_a_new_epoch(contents: bytes) -> None:
    node = await stopped("t")
    node.disk.write_file(f"{METADATA}/quorum-state", contents)
    again = await MetadataNode(node.disk.after_kill()).start()
    assert again.image.epoch == 2
    await again.stop()


async def test_the_log_reaches_back_to_the_older_of_two_snapshots() -> None:
    node = await stopped_with_two_snapshots()
    newest, older = list_snapshots(node.disk, METADATA)
    assert newest.epoch == older.epoch == 1
    assert min(log_files(node.disk)) == f"{older.end_offset:020d}.log"
    again = MetadataNode(node.disk.after_kill())
    assert again.load() == node.image


async def test_the_first_snapshot_lets_nothing_go() -> None:
    node = await stopped("a", "b", "c", snapshot_records_min=8)
    (snapshot,) = list_snapshots(node.disk, METADATA)
    assert log_files(node.disk) == [f"{start:020d}.log" for start in (0, snapshot.end_offset)]


async def test_whoever_reads_the_older_snapshot_can_finish_and_go_on_with_the_log() -> None:
    node = await MetadataNode(SimulatedFileSystem(), snapshot_records_min=4).join()
    contents: dict[SnapshotId, bytes] = {}
    for _ in range(10):
        await node.controller.submit(create("t"))
        await node.controller.submit(DeleteTopics((TopicToDelete("t"),)))
        kept = list_snapshots(node.disk, METADATA)
        assert len(kept) <= 2
        for snapshot in kept:
            found = node.disk.read_file(f"{METADATA}/{snapshot.file_name}")
            assert contents.setdefault(snapshot, found) == found
            assert min(log_files(node.disk)) <= f"{snapshot.end_offset:020d}.log"
    # Each but the last two was there when it was the older one of two, and is gone.
    assert len(contents) > 3
    assert list_snapshots(node.disk, METADATA) == sorted(contents, reverse=True)[:2]
    await node.stop()


async def test_what_a_crash_left_of_a_snapshot_is_cleared_away_by_the_next() -> None:
    node = await stopped("a")
    disk = node.disk.after_kill()
    disk.write_file(f"{METADATA}/{SnapshotId(3, 1).file_name}.tmp", b"half")
    again = await MetadataNode(disk, snapshot_records_min=1).join()
    await again.controller.submit(DeleteTopics((TopicToDelete("a"),)))
    assert not [name for name in disk.list_directory(METADATA) if name.endswith(".tmp")]
    await again.stop()


async def test_snapshots_become_rarer_as_the_image_grows() -> None:
    node = await MetadataNode(SimulatedFileSystem(), snapshot_records_min=1).join()
    await node.controller.submit(create("large", 200))
    taken = list_snapshots(node.disk, METADATA)
    for number in range(50):
        await node.controller.submit(create(f"t{number}"))
    assert list_snapshots(node.disk, METADATA) == taken
    await node.stop()


async def test_a_torn_tail_takes_whole_commands_with_it() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    await node.controller.submit(create("whole", 5))
    whole = node.image
    await node.controller.submit(create("torn", 5))
    (name,) = log_files(node.disk)
    data = node.disk.read_file(f"{METADATA}/{name}")
    disk = node.disk.after_kill()
    disk.write_file(f"{METADATA}/{name}", data[:-20])
    again = MetadataNode(disk)
    assert again.load() == whole


@pytest.mark.parametrize("names", [True, False])
@pytest.mark.parametrize("contents", [True, False])
async def test_what_was_answered_survives_a_power_cut(names: bool, contents: bool) -> None:
    node = await MetadataNode(SimulatedFileSystem(), snapshot_records_min=6).join()
    for name in "abcdefgh":
        await node.controller.submit(create(name))
    image = node.image
    disk = node.disk.after_power_cut(Fixed(names=names, contents=contents))
    again = MetadataNode(disk)
    assert again.load() == image


async def test_a_log_that_lost_its_tail_goes_on_from_the_snapshot() -> None:
    node = await stopped("a", "b", "c", snapshot_records_min=8)
    disk = node.disk.after_kill()
    for name in log_files(disk):
        disk.remove(f"{METADATA}/{name}")
    (snapshot,) = list_snapshots(disk, METADATA)
    again = await MetadataNode(disk).start()
    assert again.image.offset == snapshot.end_offset  # the leader change is right behind it
    assert "a" in again.image.topics
    await again.stop()


def damage(disk: SimulatedFileSystem, snapshot: SnapshotId) -> None:
    path = f"{METADATA}/{snapshot.file_name}"
    data = bytearray(disk.read_file(path))
    data[len(data) // 2] ^= 1
    disk.write_file(path, data)


async def test_a_damaged_snapshot_is_made_up_for_by_the_one_before_and_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await stopped_with_two_snapshots()
    newest, _ = list_snapshots(node.disk, METADATA)
    disk = node.disk.after_kill()
    damage(disk, newest)
    again = MetadataNode(disk)
    assert again.load() == node.image
    assert newest.file_name in caplog.text


async def test_damaged_snapshots_without_the_log_they_replaced_refuse_to_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node = await stopped_with_two_snapshots()
    disk = node.disk.after_kill()
    for snapshot in list_snapshots(disk, METADATA):
        damage(disk, snapshot)
    with pytest.raises(StartupRefused) as refused:
        await MetadataNode(disk).start()
    assert "no snapshot reaches" in str(refused.value)
    assert refused.value.hint
    assert snapshot.file_name in caplog.text


async def test_no_flipped_bit_in_a_snapshot_passes_for_the_truth() -> None:
    node = await stopped("a", "b", "c", snapshot_records_min=8)
    (snapshot,) = list_snapshots(node.disk, METADATA)
    path = f"{METADATA}/{snapshot.file_name}"
    whole = node.disk.read_file(path)
    empty = Image(node.image.cluster_id)
    truth = load_newest(node.disk, METADATA, empty)
    assert "a" in truth.topics
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 4
        node.disk.write_file(path, flipped)
        assert load_newest(node.disk, METADATA, empty) in (truth, empty), position


async def test_a_flipped_bit_in_a_log_that_was_closed_cleanly_refuses_to_start() -> None:
    node = await stopped("flipped")
    (name,) = log_files(node.disk)
    data = node.disk.read_file(f"{METADATA}/{name}")
    disk = node.disk.after_kill()
    disk.write_file(f"{METADATA}/{name}", data.replace(b"flipped", b"flopped"))
    with pytest.raises(StartupRefused, match="does not match its checksum"):
        await MetadataNode(disk).start()


async def test_a_snapshot_without_its_footer_is_passed_over() -> None:
    node = await stopped("a", "b")
    assert not list_snapshots(node.disk, METADATA)
    donor = await stopped("x", "y", "z", snapshot_records_min=8)
    (snapshot,) = list_snapshots(donor.disk, METADATA)
    data = donor.disk.read_file(f"{METADATA}/{snapshot.file_name}")
    footer_bytes = 75
    for broken in (data[:-footer_bytes], data[:-1], b""):
        disk = node.disk.after_kill()
        disk.write_file(f"{METADATA}/{SnapshotId(3, 1).file_name}", broken)
        again = MetadataNode(disk)
        assert set(again.load().topics) == {"a", "b"}
        node = again


async def test_a_batch_with_a_good_checksum_and_no_record_in_it_refuses_to_start() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    log = node.log
    batch = _batch_with_value(b"\x01\x7f\x00")
    log._append(batch, node.quorum.epoch)
    log.flush()
    with pytest.raises(StartupRefused, match="damaged at offset"):
        await MetadataNode(node.disk.after_kill()).start()


async def test_a_record_of_a_later_version_refuses_to_start_and_says_so() -> None:
    node = await MetadataNode(SimulatedFileSystem()).join()
    log = node.log
    remove_acl = b"\x01\x13\x00" + bytes(16) + b"\x00"
    log._append(_batch_with_value(remove_acl), node.quorum.epoch)
    log.flush()
    with pytest.raises(StartupRefused, match="which this version does not know"):
        await MetadataNode(node.disk.after_kill()).start()


def _batch_with_value(value: bytes) -> bytearray:
    return encode_batch([Record(0, 1, None, value)])


@pytest.mark.parametrize(
    ("kind", "error"), [("rename", errno.ENOSPC), ("open", errno.EMFILE), ("open", errno.EIO)]
)
async def test_a_log_that_could_not_be_emptied_behind_a_snapshot_is_emptied_later(
    kind: str, error: int
) -> None:
    disk = SimulatedFileSystem()
    node = await MetadataNode(disk, snapshot_records_min=4).join()
    rule = Fault(kind, error, ".log", times=2)
    for number in range(20):
        if number == 3:
            disk.faults.rules = [rule]
        topic = TopicToCreate(f"t{number}", 1, 1)
        with suppress(StorageError):
            await node.controller.submit(CreateTopics((topic,)))
        with suppress(StorageError):
            await node.controller.submit(DeleteTopics((TopicToDelete(topic.name),)))
    assert rule.times == 0
    await node.controller.submit(CreateTopics((TopicToCreate("last", 1, 1),)))
    image = node.controller.image
    assert "last" in image.topics
    again = await MetadataNode(disk.after_kill(), snapshot_records_min=4).join()
    assert again.controller.image.topics.keys() == image.topics.keys()
