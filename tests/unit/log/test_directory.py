"""A node's data directory: whose it is, who is in it, what a stop and a start leave of it."""

import errno
import threading
from uuid import UUID

import pytest

from headrace.core.errors import StartupRefused, StorageError
from headrace.core.ids import Offset, TopicPartition
from headrace.log.config import LogConfig
from tests.simulation.disk import Fault
from tests.simulation.inodes import LOSE_EVERYTHING
from tests.support.logs import (
    ORDERS,
    START_MS,
    TOPIC_ID,
    ToldClock,
    append,
    batch,
    fill,
    open_directory,
    simulated_disk,
)

OTHER_ID = UUID(int=8, version=4)
CONFIG = LogConfig(file_delete_delay_ms=1000)
POINTS = "/data/recovery-point-offset-checkpoint"


def test_a_new_directory_gets_an_identity_that_stays() -> None:
    disk = simulated_disk()
    first = open_directory(disk)
    lines = disk.read_file("/data/meta.properties").decode().splitlines()
    assert [line.partition("=")[0] for line in lines] == [
        "version",
        "cluster.id",
        "node.id",
        "directory.id",
    ]
    assert len(first.cluster_id) == 22
    first.close()
    assert open_directory(disk.after_kill()).meta_properties == first.meta_properties


def test_another_node_is_refused() -> None:
    disk = simulated_disk()
    open_directory(disk, node_id=1).close()
    with pytest.raises(StartupRefused, match="belongs to node 1") as refused:
        open_directory(disk, node_id=2)
    assert "meta.properties" in refused.value.hint


@pytest.mark.parametrize("content", [b"", b"version=0\n", b"version=1\nnode.id=0\n", b"\xff\xfe"])
def test_a_damaged_identity_refuses_the_start(content: bytes) -> None:
    disk = simulated_disk()
    open_directory(disk).close()
    disk.write_file("/data/meta.properties", content)
    with pytest.raises(StartupRefused, match=r"meta\.properties"):
        open_directory(disk)


def test_a_second_process_is_refused_until_the_first_is_gone() -> None:
    disk = simulated_disk()
    first = open_directory(disk)
    with pytest.raises(StartupRefused, match="in use by another process"):
        open_directory(disk)
    first.close()
    open_directory(disk)


def test_a_refused_start_lets_the_lock_go() -> None:
    disk = simulated_disk()
    open_directory(disk, node_id=1).close()
    for _ in range(2):
        with pytest.raises(StartupRefused, match="belongs to node"):
            open_directory(disk, node_id=2)


@pytest.mark.parametrize("kind", ["make_directory", "open", "write"])
def test_a_directory_that_cannot_be_written_refuses_the_start(kind: str) -> None:
    disk = simulated_disk()
    disk.faults.rules = [Fault(kind, errno.EROFS)]
    with pytest.raises(StartupRefused, match="cannot be used"):
        open_directory(disk)


def test_a_clean_stop_is_known_to_the_next_start_only() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    assert not directory.clean
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 3)
    directory.close()
    assert disk.exists("/data/.kafka_cleanshutdown")
    disk = disk.after_kill()
    assert open_directory(disk).clean
    assert not open_directory(disk.after_kill()).clean


def test_a_log_that_cannot_be_closed_makes_the_stop_unclean() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 3)
    disk.faults.rules = [Fault("sync", errno.EIO, "orders-0")]
    directory.close()
    assert not disk.exists("/data/.kafka_cleanshutdown")


def test_partitions_are_found_again() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    dotted = TopicPartition("a-b.c-1", 12)
    for partition in (ORDERS, dotted):
        fill(directory.create(partition, TOPIC_ID, CONFIG), 3)
    directory.create(TopicPartition("empty", 0), TOPIC_ID, CONFIG)
    directory.close()
    again = open_directory(disk.after_kill())
    assert again.partitions_on_disk == {ORDERS, dotted}
    assert again.create(dotted, TOPIC_ID, CONFIG).log_end_offset == 3


def test_a_partition_is_open_only_once() -> None:
    directory = open_directory(simulated_disk())
    directory.create(ORDERS, TOPIC_ID, CONFIG)
    with pytest.raises(ValueError, match="open already"):
        directory.create(ORDERS, TOPIC_ID, CONFIG)


def test_the_topic_id_is_written_beside_the_data() -> None:
    disk = simulated_disk()
    append(open_directory(disk).create(ORDERS, TOPIC_ID, CONFIG), batch())
    content = disk.read_file("/data/orders-0/partition.metadata")
    assert content == b"version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAABw\n"


def test_a_deleted_partition_is_renamed_at_once_and_removed_later() -> None:
    disk = simulated_disk()
    clock = ToldClock()
    directory = open_directory(disk, clock=clock)
    log = directory.create(ORDERS, TOPIC_ID, CONFIG)
    fill(log, 3)
    directory.delete(ORDERS)
    directory.rename_deleted()
    (renamed,) = [n for n in disk.list_directory("/data") if n.endswith("-delete")]
    assert renamed.startswith("orders-0.")
    with pytest.raises(StorageError):
        append(log, batch())
    directory.remove_deleted(START_MS + 999)
    assert disk.exists(f"/data/{renamed}")
    directory.remove_deleted(START_MS + 1000)
    assert not disk.exists(f"/data/{renamed}")


def test_what_cannot_be_removed_keeps_nothing_else_and_is_tried_again() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    other, third = TopicPartition("other", 0), TopicPartition("third", 0)
    small = LogConfig(segment_bytes=300, file_delete_delay_ms=0)
    for partition in (ORDERS, other, third):
        fill(directory.create(partition, TOPIC_ID, small), 10)
    directory.delete(ORDERS)
    directory.delete(other)
    directory.rename_deleted()
    fourth = directory.create(TopicPartition("fourth", 0), TOPIC_ID, small)
    fill(fourth, 10)
    for log in (directory.logs[third], fourth):
        log.truncate_to(Offset(1))

    def leftovers() -> set[str]:
        return {
            topic
            for topic in ("orders", "other", "third", "fourth")
            for name in disk.list_directory("/data")
            if name.startswith(topic)
            and (
                name.endswith("-delete")
                or any(file.endswith(".deleted") for file in disk.list_directory(f"/data/{name}"))
            )
        }

    disk.faults.rules = [Fault("remove", errno.EIO, part) for part in ("orders-0.", "third-0")]
    directory.remove_deleted(START_MS)
    assert leftovers() == {"orders", "third"}
    disk.faults.rules = []
    directory.remove_deleted(START_MS)
    assert leftovers() == set()


def test_a_deleted_partition_is_removed_by_the_next_start_if_not_before() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 3)
    directory.delete(ORDERS)
    directory.rename_deleted()
    again = open_directory(disk.after_kill())
    assert again.partitions_on_disk == frozenset()
    again.remove_deleted(START_MS)
    left = again._files.list_directory("/data")
    assert not [name for name in left if name.endswith("-delete")]


@pytest.mark.parametrize("name", ["to-delete", "orders-0.old-delete", "orders-0-delete"])
def test_a_directory_that_only_ends_like_a_deleted_partition_is_left_alone(name: str) -> None:
    disk = simulated_disk()
    open_directory(disk).close()
    disk.make_directory(f"/data/{name}")
    disk.write_file(f"/data/{name}/photo", b"precious")
    directory = open_directory(disk)
    directory.remove_deleted(START_MS)
    assert disk.read_file(f"/data/{name}/photo") == b"precious"


def test_a_topic_with_the_longest_name_can_be_deleted() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    longest = TopicPartition("t" * 249, 0)
    fill(directory.create(longest, TOPIC_ID, CONFIG), 1)
    directory.delete(longest)
    directory.rename_deleted()
    assert all(len(name) <= 255 for name in disk.list_directory("/data"))


@pytest.mark.parametrize("restart", [True, False])
def test_a_topic_created_again_begins_empty(restart: bool) -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, CONFIG)
    fill(log, 9)
    log.advance_log_start(Offset(4))
    directory.checkpoint()
    if restart:  # the deletion itself is not seen, only that the id is another one
        directory = open_directory(disk.after_kill())
    else:
        directory.delete(ORDERS)
    log = directory.create(ORDERS, OTHER_ID, CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    fill(log, 2)
    log.flush()
    again = open_directory(directory._files.after_kill())  # type: ignore[attr-defined]  # simulated
    log = again.create(ORDERS, OTHER_ID, CONFIG)
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)


def test_data_that_is_said_to_be_stray_is_set_aside() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 3)
    directory.close()
    disk = disk.after_kill()
    again = open_directory(disk)
    again.rename_stray_directories([ORDERS])
    assert again.partitions_on_disk == frozenset()
    (stray,) = [n for n in disk.list_directory("/data") if n.endswith("-stray")]
    assert disk.exists(f"/data/{stray}/00000000000000000000.log")


def test_a_checkpoint_moves_the_recovery_points() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, CONFIG)
    fill(log, 9)
    assert directory.bytes_since_checkpoint == log.size_bytes
    assert log.recovery_point == 0
    directory.checkpoint()
    assert directory.bytes_since_checkpoint == 0
    assert (log.recovery_point, log.flushed_offset) == (9, 9)
    table = disk.read_file(POINTS)
    assert table == b"0\n1\norders 0 9\n"


def test_an_idle_checkpoint_touches_nothing() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 9)
    directory.create(TopicPartition("idle", 0), TOPIC_ID, CONFIG)
    directory.checkpoint()
    before = len(disk.operations)
    directory.checkpoint()
    assert len(disk.operations) == before


def test_a_log_that_fails_does_not_keep_others_from_their_checkpoint() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    other = TopicPartition("other", 0)
    for partition in (ORDERS, other):
        fill(directory.create(partition, TOPIC_ID, CONFIG), 3)
    disk.faults.rules = [Fault("sync", errno.EIO, "orders-0")]
    directory.checkpoint()
    assert directory.logs[ORDERS].recovery_point == 0
    assert directory.logs[other].recovery_point == 3


def test_truncation_lowers_the_recovery_point_on_disk_first() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, CONFIG)
    fill(log, 9)
    directory.checkpoint()
    before = len(disk.operations)
    log.truncate_to(Offset(4))
    kinds = [operation.kind for operation in disk.operations[before:]]
    assert kinds.index("sync_directory") < kinds.index("truncate")
    table = disk.read_file(POINTS)
    assert table == b"0\n1\norders 0 4\n"


def test_deleted_records_are_gone_for_certain_though_another_wrote_it_down() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    log = directory.create(ORDERS, TOPIC_ID, CONFIG)
    fill(log, 9)
    directory.checkpoint()
    log.advance_log_start(Offset(4))
    directory.checkpoint_log_starts()  # the timed one, in another worker
    directory.checkpoint_log_starts(durable=True)
    again = open_directory(disk.after_power_cut(LOSE_EVERYTHING))
    assert again.create(ORDERS, TOPIC_ID, CONFIG).log_start_offset == 4


def test_a_durable_checkpoint_of_what_is_on_disk_syncs_nothing() -> None:
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 9)
    directory.logs[ORDERS].advance_log_start(Offset(4))
    directory.checkpoint_log_starts(durable=True)
    before = len(disk.operations)
    directory.checkpoint_log_starts(durable=True)
    assert len(disk.operations) == before


def test_a_topic_created_again_during_a_checkpoint_is_not_vouched_for() -> None:
    """A worker is writing the old topic's recovery point down when its name is taken again."""
    disk = simulated_disk()
    directory = open_directory(disk)
    fill(directory.create(ORDERS, TOPIC_ID, CONFIG), 9)
    directory.logs[ORDERS].checkpoint()
    created = threading.Thread(target=directory.create, args=(ORDERS, OTHER_ID, CONFIG))

    def create_again_meanwhile() -> None:
        if created.ident is None and disk.exists(f"{POINTS}.tmp"):
            directory.delete(ORDERS)
            created.start()
            created.join(0.1)  # it waits for the checkpoint, or would not have noticed it

    disk.pause_point = create_again_meanwhile
    directory._write_tables()
    created.join(10)
    assert created.ident is not None
    assert b"orders 0 9" not in disk.read_file(POINTS)
