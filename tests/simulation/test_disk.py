"""The simulated disk loses what it should, keeps what it must, and fails as it is told."""

import errno
from random import Random

import pytest

from tests.simulation.disk import Fault, SimulatedFileSystem
from tests.simulation.inodes import (
    KEEP_CONTENTS,
    KEEP_EVERYTHING,
    KEEP_NAMES,
    LOSE_EVERYTHING,
    Seeded,
    Survival,
    Torn,
)
from tests.simulation.processes import ProcessDied


def disk_with(*, name_synced: bool, content_synced: bool) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_directory("/data")
    disk.sync_everything()
    file = disk.open("/data/a", create=True)
    file.append([b"abc"])
    if content_synced:
        file.sync()
    if name_synced:
        disk.sync_directory("/data")
    return disk


@pytest.mark.parametrize(
    ("survival", "content"),
    [
        (LOSE_EVERYTHING, None),
        (KEEP_EVERYTHING, b"abc"),
        (KEEP_NAMES, b""),
        (KEEP_CONTENTS, None),
        (Torn(0), b"a\0\0"),
    ],
)
def test_an_unsynced_file_has_every_fate(survival: Survival, content: bytes | None) -> None:
    after = disk_with(name_synced=False, content_synced=False).after_power_cut(survival)
    assert (after.read_file("/data/a") if after.exists("/data/a") else None) == content


def test_a_synced_file_in_a_synced_directory_survives_anything() -> None:
    for seed in range(50):
        disk = disk_with(name_synced=True, content_synced=True)
        assert disk.after_power_cut(Seeded(Random(seed))).read_file("/data/a") == b"abc"


def test_a_synced_file_without_its_name_may_vanish() -> None:
    after = disk_with(name_synced=False, content_synced=True).after_power_cut(LOSE_EVERYTHING)
    assert after.list_directory("/data") == []


def test_a_kill_keeps_every_byte_but_does_not_make_it_stable() -> None:
    after_kill = disk_with(name_synced=False, content_synced=False).after_kill()
    assert after_kill.read_file("/data/a") == b"abc"
    assert after_kill.after_power_cut(LOSE_EVERYTHING).list_directory("/data") == []


def test_a_rename_is_undone_or_done_never_halved() -> None:
    for seed in range(50):
        disk = disk_with(name_synced=True, content_synced=True)
        disk.write_file("/data/a.tmp", b"new")
        disk.open("/data/a.tmp").sync()
        disk.rename("/data/a.tmp", "/data/a")
        after = disk.after_power_cut(Seeded(Random(seed)))
        assert after.read_file("/data/a") in (b"abc", b"new")


def test_a_removed_file_comes_back_unless_its_directory_was_synced() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    disk.remove("/data/a")
    assert disk.copy().after_power_cut(LOSE_EVERYTHING).read_file("/data/a") == b"abc"
    disk.sync_directory("/data")
    assert not disk.after_power_cut(LOSE_EVERYTHING).exists("/data/a")


def test_a_directory_whose_own_name_is_not_stable_takes_all_below_with_it() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    disk.make_directory("/data/topic-0")
    disk.write_file("/data/topic-0/log", b"abc")
    disk.open("/data/topic-0/log").sync()
    disk.sync_directory("/data/topic-0")
    assert not disk.after_power_cut(LOSE_EVERYTHING).exists("/data/topic-0")


def test_a_cut_that_was_not_synced_may_be_undone() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    file = disk.open("/data/a")
    file.truncate(1)
    assert disk.copy().after_power_cut(LOSE_EVERYTHING).read_file("/data/a") == b"abc"
    file.sync()
    assert disk.after_power_cut(LOSE_EVERYTHING).read_file("/data/a") == b"a"


def test_seeded_cuts_reach_whole_partial_torn_and_reordered_contents() -> None:
    results = set()
    for seed in range(300):
        disk = disk_with(name_synced=True, content_synced=True)
        file = disk.open("/data/a")
        file.append([b"x" * 600])
        file.append([b"y" * 600])
        results.add(disk.after_power_cut(Seeded(Random(seed))).read_file("/data/a"))
    assert b"abc" in results
    assert b"abc" + b"x" * 600 in results
    assert b"abc" + b"x" * 600 + b"y" * 600 in results
    assert any(len(result) == 1203 and result.startswith(b"abc\0") for result in results), "blocks"
    assert any(603 < len(result) < 1203 for result in results), "torn"


def test_the_same_seed_gives_the_same_disk() -> None:
    def after(seed: int) -> bytes:
        disk = disk_with(name_synced=True, content_synced=True)
        disk.open("/data/a").append([b"z" * 5000])
        return disk.after_power_cut(Seeded(Random(seed))).read_file("/data/a")

    assert [after(seed) for seed in range(20)] == [after(seed) for seed in range(20)]


def test_a_copy_lives_apart() -> None:
    disk = disk_with(name_synced=False, content_synced=False)
    copy = disk.copy()
    disk.open("/data/a").append([b"def"])
    disk.sync_everything()
    assert copy.read_file("/data/a") == b"abc"
    assert copy.after_power_cut(LOSE_EVERYTHING).list_directory("/data") == []


def test_a_dead_process_can_do_nothing_more() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    file = disk.open("/data/a")
    lock = disk.lock("/data/.lock")
    heir = disk.after_kill()
    with pytest.raises(ProcessDied):
        file.append([b"ghost"])
    with pytest.raises(ProcessDied):
        disk.remove("/data/a")
    with pytest.raises(ProcessDied):
        disk.make_directory("/data/b")
    heir.lock("/data/.lock").release()
    lock.release()
    assert heir.read_file("/data/a") == b"abc"


def test_every_step_is_an_operation_with_its_call_site() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    disk.rename("/data/a", "/data/b")
    disk.remove("/data/b")
    kinds = [operation.kind for operation in disk.operations]
    written = ["make_directory", "create", "append", "sync", "sync_directory"]
    assert kinds == [*written, "rename", "remove"]
    assert all(operation.site.startswith("test_disk.py:") for operation in disk.operations)


def test_a_skipped_sync_site_syncs_nothing_and_the_others_do() -> None:
    def run(skipped: set[str]) -> SimulatedFileSystem:
        disk = SimulatedFileSystem()
        disk.make_directory("/data")
        disk.sync_everything()
        disk.faults.skipped_sync_sites = skipped
        for name in ("a", "b"):
            disk.write_file(f"/data/{name}", b"abc")
        disk.open("/data/a").sync()
        disk.open("/data/b").sync()
        disk.sync_directory("/data")
        return disk

    first_site = next(o.site for o in run(set()).operations if o.kind == "sync")
    after = run({first_site}).after_power_cut(LOSE_EVERYTHING)
    assert (after.read_file("/data/a"), after.read_file("/data/b")) == (b"", b"abc")


def test_a_lying_disk_syncs_nothing() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    disk.faults.ignore_syncs_below = "/data"
    disk.open("/data/a").append([b"def"])
    disk.open("/data/a").sync()
    assert disk.after_power_cut(LOSE_EVERYTHING).read_file("/data/a") == b"abc"


def test_a_full_disk_refuses_what_does_not_fit() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    disk.faults.capacity_bytes = 10
    file = disk.open("/data/a")
    file.append([b"1234567"])
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"8"])
    assert caught.value.errno == errno.ENOSPC
    assert disk.space("/data")[1] == 0
    assert file.size() == 10
    file.truncate(5)
    file.append([b"fits"])


def test_faults_strike_the_calls_they_name() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    file = disk.open("/data/a")
    disk.faults.rules = [Fault("read", errno.EIO, "a", times=1), Fault("write", errno.EROFS, "b")]
    with pytest.raises(OSError, match="Input/output"):
        file.read(0, 1)
    assert file.read(0, 1) == b"a"
    file.append([b"fine"])
    with pytest.raises(OSError, match="Read-only"):
        disk.write_file("/data/b", b"x")


def test_what_a_failed_sync_left_behind_is_gone_for_good() -> None:
    disk = disk_with(name_synced=True, content_synced=True)
    file = disk.open("/data/a")
    file.append([b"def"])
    disk.faults.rules = [Fault("sync", errno.EIO, times=1)]
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    with pytest.raises(OSError, match="earlier sync failed"):
        file.sync()
    disk.open("/data/a").sync()
    assert disk.read_file("/data/a") == b"abcdef"
    assert disk.after_power_cut(KEEP_EVERYTHING).read_file("/data/a") == b"abc\0\0\0"
