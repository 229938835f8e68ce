"""All partitions of a node in one directory, with what belongs to none of them alone.

    .lock                              one process at a time
    meta.properties                    whose data this is
    .kafka_cleanshutdown               the last stop left nothing to recover
    recovery-point-offset-checkpoint   up to where each log need not be checked after a crash
    log-start-offset-checkpoint        up to where records were deleted
    <topic>-<n>/                       one log each
    <topic>-<n>.<id>-delete/           one to be removed

A partition is open (`logs`), or has a directory that nobody has opened (`partitions_on_disk`): one
that could not be opened stays there, with all that the tables say about it, until it is opened,
deleted or renamed as stray. What is stray is for the metadata to say, not for this directory.

`checkpoint`, `checkpoint_log_starts`, `rename_deleted` and `remove_deleted` may run in a worker,
also beside each other; `open_log` and `rename_stray_directories` too, one call at a time and not
beside `rename_deleted`. The rest belongs to one thread. Opening a new partition, and a truncation
below what is checkpointed, wait for a table that is just being written.
"""

import json
import logging
import threading
from collections.abc import Iterable

from headrace.core.errors import StartupRefused, StorageError
from headrace.core.files import DirectoryLock, FileSystem
from headrace.core.ids import NodeId, Offset, TopicId, TopicPartition
from headrace.core.runtime import Clock, Randomness
from headrace.log import partition_metadata
from headrace.log.checkpoints import (
    encode_offsets,
    find_offsets,
    replace_file,
    require_offsets,
)
from headrace.log.config import LogConfig
from headrace.log.directory_checks import (
    make_durable_directory,
    remove_clean_marker,
    require_no_data,
)
from headrace.log.meta_properties import MetaProperties, load_or_create
from headrace.log.names import (
    CLEAN_SHUTDOWN,
    DELETED_DIRECTORY,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    STRAY_DIRECTORY,
    is_deleted_partition,
    parse_partition,
    removal_name,
)
from headrace.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class LogDirectory:
    """Opens, creates, deletes and checkpoints the logs below one path."""

    def __init__(
        self,
        files: FileSystem,
        path: str,
        clock: Clock,
        randomness: Randomness,
        identity: MetaProperties,
        lock: DirectoryLock,
        log_starts: dict[TopicPartition, Offset],
        *,
        clean: bool,
        is_new: bool,
    ) -> None:
        self.path = path
        self.meta_properties = identity
        self.clean = clean
        self.is_new = is_new
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self._files = files
        self._clock = clock
        self._randomness = randomness
        self._lock = lock
        found = find_offsets(files, f"{path}/{RECOVERY_POINTS}")
        # A new directory has a table from the start: without one nobody knows them any more.
        self._recovery_points_lost = found is None
        self._recovery_points = found or {}
        self._log_starts = log_starts
        names = files.list_directory(path)
        self._on_disk = {tp for name in names if (tp := parse_partition(name)) is not None}
        # Partitions whose directories are still to be renamed, and when their files may go.
        self._deleted: dict[TopicPartition, float] = {}
        self._pending_removal = {
            f"{path}/{name}": 0.0 for name in names if is_deleted_partition(name)
        }
        # One writer of checkpoint files at a time; the tables are taken, and kept here as what
        # is on disk, inside it. A log's `structure_lock` may be held around it, never the reverse.
        self._checkpoint_lock = threading.Lock()
        # Whether a power cut may take the newest tables.
        self._unsynced_tables = False

    @classmethod
    def open(
        cls,
        files: FileSystem,
        path: str,
        clock: Clock,
        randomness: Randomness,
        *,
        node_id: NodeId,
        cluster_id: str | None = None,
    ) -> "LogDirectory":
        """Take the directory for this process; raises `StartupRefused` if that must not be."""
        path = path.rstrip("/") or "/"
        try:
            make_durable_directory(files, path)
            lock = files.lock(f"{path}/{LOCK}")
        except BlockingIOError as error:
            raise StartupRefused(
                f"{path} is in use by another process",
                hint="stop the other broker, or start this one with its own data directory",
            ) from error
        except OSError as error:
            raise StartupRefused(
                f"{path} cannot be used: {error}",
                hint="the data directory must exist or be creatable, and be writable",
            ) from error
        try:
            is_new = not files.exists(f"{path}/{META_PROPERTIES}")
            if is_new:
                require_no_data(files, path)
                # So that a missing table can only mean that it was lost.
                table = f"{path}/{RECOVERY_POINTS}"
                replace_file(files, table, encode_offsets({}), durable=True)
            identity = load_or_create(
                files, path, randomness, node_id=node_id, cluster_id=cluster_id
            )
            # Were they taken for absent, deleted records would be back, and stay so. Before the
            # marker is taken: a refusal must not cost the clean stop.
            log_starts = require_offsets(files, f"{path}/{LOG_STARTS}")
            clean = remove_clean_marker(files, path)
            return cls(
                files,
                path,
                clock,
                randomness,
                identity,
                lock,
                log_starts,
                clean=clean,
                is_new=is_new,
            )
        except OSError as error:
            lock.release()
            raise StartupRefused(
                f"{path} cannot be used: {error}", hint="look at permissions and free space"
            ) from error
        except BaseException:
            lock.release()
            raise

    @property
    def cluster_id(self) -> str:
        return self.meta_properties.cluster_id

    def space(self) -> tuple[int, int]:
        """Bytes of the file system below: in all, and still to be written."""
        return self._files.space(self.path)

    # Partitions

    @property
    def partitions_on_disk(self) -> frozenset[TopicPartition]:
        """Partitions with a directory and without an open log: not opened yet, or not to be
        opened, or just deleted."""
        return frozenset(self._on_disk)

    def create(
        self, partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> PartitionLog:
        """The log of a partition, as `open_log` and `add` make it."""
        log = self.open_log(partition, topic_id, config)
        self.add(partition, log)
        return log

    def open_log(
        self, partition: TopicPartition, topic_id: TopicId, config: LogConfig
    ) -> PartitionLog:
        """The log of a partition: opened (and recovered) if it is on disk, else a new one. It
        belongs to the directory once `add` was called.

        Data with another topic id is set aside: it may be that of an earlier topic of this name,
        or the id may have been altered.
        """
        if partition in self.logs:
            raise ValueError(f"{partition} is open already")
        directory = f"{self.path}/{partition}"
        if partition in self._deleted:
            self._rename_deleted(partition)
        if partition in self._on_disk:
            owner = partition_metadata.load(self._files, directory)
            if owner is not None and owner != topic_id:
                logger.warning("setting aside data of another topic id: partition=%s", partition)
                self._rename_for_removal(partition, STRAY_DIRECTORY, None)
        if partition not in self._on_disk:
            self._purge_checkpoint_entry(partition)
        return PartitionLog.open(
            self._files,
            directory,
            config,
            self._clock,
            recovery_point=self._recovery_point(partition),
            log_start_offset=self._log_starts.get(partition, 0),
            clean=self.clean,
            topic_id=topic_id,
            lower_checkpoints=self._write_tables,
        )

    def add(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Take in a log that `open_log` has opened."""
        self.logs[partition] = log
        # Last: until then the tables must go on saying what they say about it, and a second
        # attempt must find what the first one found.
        self._on_disk.discard(partition)

    def delete(self, partition: TopicPartition) -> None:
        """Close a partition at once; `rename_deleted` frees its name for another.

        Also of one that could not be opened.
        """
        log = self.logs.get(partition)
        if log is not None:
            log.refuse_writes()
            # A directory like any other until it has another name, if there is one.
            self._on_disk.add(partition)
            del self.logs[partition]
        if partition in self._on_disk:
            delay_ms = 0 if log is None else log.config.file_delete_delay_ms
            self._deleted[partition] = self._clock.monotonic_ms() + delay_ms

    def take_offline(self, partition: TopicPartition) -> None:
        """Close a log that cannot be used; its directory stays, as if it had not been opened.

        Nothing is checkpointed for it any more, so the next start looks at it again.
        """
        log = self.logs.get(partition)
        if log is not None:
            log.refuse_writes()
            self._on_disk.add(partition)
            del self.logs[partition]

    @property
    def has_deleted(self) -> bool:
        return bool(self._deleted)

    def rename_deleted(self, max_count: int | None = None) -> bool:
        """Rename directories of deleted partitions; their files go after `file.delete.delay.ms`.

        Nothing is synced: should a power cut bring a directory back, its topic id says that
        nobody wants it any more. True if there are more than `max_count`.
        """
        for partition in list(self._deleted)[:max_count]:
            self._rename_deleted(partition)
        return bool(self._deleted)

    def _rename_deleted(self, partition: TopicPartition) -> None:
        due_ms = self._deleted.pop(partition)
        try:
            self._rename_for_removal(partition, DELETED_DIRECTORY, due_ms)
        except OSError as error:
            # It stays on disk under its name: the next start, or the next of its name, finds
            # another topic id in it and sets it aside.
            logger.error("cannot be renamed: partition=%s error=%s", partition, error)

    def rename_stray_directories(self, strays: Iterable[TopicPartition]) -> None:
        """Rename directories that, by the metadata, are none of this node's."""
        for partition in strays:
            logger.warning("setting aside data of an unknown topic: partition=%s", partition)
            try:
                self._rename_for_removal(partition, STRAY_DIRECTORY, None)
            except OSError as error:
                logger.error("cannot be set aside: partition=%s error=%s", partition, error)

    def _purge_checkpoint_entry(self, partition: TopicPartition) -> None:
        """Take what an earlier partition of this name left in the tables out of them.

        Durably, since the tables know names only: after a crash the new partition's records
        would pass for deleted, and its torn tail for checked.
        """
        # Inside, since a worker may be writing the earlier partition's offsets at this moment.
        with self._checkpoint_lock:
            if partition in self._log_starts or partition in self._recovery_points:
                self._write_both()

    def _rename_for_removal(
        self, partition: TopicPartition, suffix: str, due_ms: float | None
    ) -> None:
        name = removal_name(partition, self._randomness.uuid().hex, suffix)
        try:
            self._files.rename(f"{self.path}/{partition}", f"{self.path}/{name}")
        except FileNotFoundError:
            due_ms = None  # nothing was ever written to it
        if due_ms is not None:
            self._pending_removal[f"{self.path}/{name}"] = due_ms
        self._on_disk.discard(partition)

    def remove_deleted(self, now_ms: float) -> None:
        """Remove files of deleted partitions and segments whose time has come, by the monotonic
        clock.

        What cannot be removed keeps nothing else, and is tried again the next time.
        """
        for path, due_ms in list(self._pending_removal.items()):
            if due_ms <= now_ms:
                try:
                    self._files.remove_tree(path)
                except OSError as error:
                    if self._files.exists(path):
                        logger.error("cannot be removed: path=%s error=%s", path, error)
                        continue
                del self._pending_removal[path]
        for log in list(self.logs.values()):
            try:
                log.remove_deleted(now_ms)
            except OSError as error:
                logger.error("cannot be removed: path=%s error=%s", log.directory, error)

    # Checkpoints

    @property
    def bytes_since_checkpoint(self) -> int:
        """What recovery would have to read if the process died now."""
        return sum(log.flush_state.bytes_since_checkpoint for log in self.logs.values())

    def checkpoint(self) -> None:
        """Move the recovery points to what is flushed now; in a worker, every few seconds."""
        moved = False
        for partition, log in list(self.logs.items()):
            if log.checkpoint_due and log.failure is None:
                try:
                    log.checkpoint()
                    moved = True
                except StorageError as error:
                    if self.logs.get(partition) is log:  # not deleted meanwhile
                        logger.error("checkpoint failed: path=%s error=%s", log.directory, error)
        if moved:
            with self._checkpoint_lock:
                self._write_recovery_points()
        self.checkpoint_log_starts()

    def checkpoint_log_starts(self, *, durable: bool = False) -> None:
        """Write down log starts that no segment's name says; `durable` survives a power cut,
        whoever wrote them."""
        with self._checkpoint_lock:
            if self._current_log_starts() != self._log_starts:
                self._write_log_starts()
            if durable:
                self._sync_tables()

    def _write_tables(self) -> None:
        """Both, durably."""
        with self._checkpoint_lock:
            self._write_both()

    # The following are for those who hold `_checkpoint_lock`.

    def _write_both(self) -> None:
        self._write_log_starts()
        self._write_recovery_points()
        self._sync_tables()

    def _write_log_starts(self) -> None:
        self._log_starts = self._write(LOG_STARTS, self._current_log_starts())

    def _write_recovery_points(self) -> None:
        """Bring them to disk, for certain.

        Were a lower one to stay behind, the old table would vouch for batches that have been
        overwritten; were a higher one not to get there, compaction could leave holes where
        recovery takes a hole for lost data. If the table was lost, the next one must be complete.
        """
        if self._recovery_points_lost and self._on_disk:
            return
        written = self._write(RECOVERY_POINTS, self._current_recovery_points())
        self._recovery_points = written
        self._sync_tables()
        for partition, offset in written.items():
            log = self.logs.get(partition)
            if log is not None:
                log.flush_state.checkpoint_stored(offset)

    def _write(
        self, name: str, offsets: dict[TopicPartition, Offset]
    ) -> dict[TopicPartition, Offset]:
        self._unsynced_tables = True
        replace_file(self._files, f"{self.path}/{name}", encode_offsets(offsets), durable=True)
        return offsets

    def _sync_tables(self) -> None:
        if self._unsynced_tables:
            self._files.sync_directory(self.path)
            self._unsynced_tables = False

    def _recovery_point(self, partition: TopicPartition) -> Offset | None:
        if self._recovery_points_lost:
            return None
        return self._recovery_points.get(partition, Offset(0))

    def _current_recovery_points(self) -> dict[TopicPartition, Offset]:
        points = {tp: o for tp, o in self._recovery_points.items() if tp in self._on_disk}
        points.update(
            {tp: log.flush_state.checkpointed_offset for tp, log in list(self.logs.items())}
        )
        return points

    def _current_log_starts(self) -> dict[TopicPartition, Offset]:
        starts = {tp: o for tp, o in self._log_starts.items() if tp in self._on_disk}
        for tp, log in list(self.logs.items()):
            if log.log_start_needs_checkpoint:
                starts[tp] = log.log_start_offset
        return starts

    # Leaving

    def close(self) -> None:
        """Close every log; if all went well, say so for the next start.

        The marker stands for every log, so it is not written if one was never opened or did not
        close. That costs the others nothing: their recovery points are their ends.
        """
        clean = not self._on_disk
        for log in self.logs.values():
            try:
                log.close()
            except StorageError as error:
                clean = False
                logger.error("log was not closed: directory=%s error=%s", log.directory, error)
        try:
            with self._checkpoint_lock:
                if not (self._recovery_points_lost and self._on_disk):
                    self._write(RECOVERY_POINTS, self._current_recovery_points())
            self.checkpoint_log_starts()
            if clean:
                # Unsynced: without it the next start only takes longer. What it stands for has
                # been synced by the logs.
                marker = json.dumps({"version": 0, "brokerEpoch": -1}).encode()
                self._files.write_file(f"{self.path}/{CLEAN_SHUTDOWN}", marker)
        except OSError as error:
            logger.error("the next start will recover: path=%s error=%s", self.path, error)
        self.release_lock()

    def release_lock(self) -> None:
        """Leave the directory as it is, as the death of the process would."""
        self._lock.release()
