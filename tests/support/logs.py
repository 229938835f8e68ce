"""Logs for tests: batches with few words, a clock that is told, directories on any disk."""

from collections.abc import Sequence
from random import Random
from uuid import UUID

from headrace.core.files import FileSystem
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.log.config import LogConfig
from headrace.log.directory import LogDirectory
from headrace.log.partition_log import AppendInfo, PartitionLog
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import BatchHeader, iterate_headers, parse_header
from tests.simulation.disk import SimulatedFileSystem
from tests.simulation.loop import SeededRandomness

START_MS = 1_700_000_000_000
ORDERS = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7, version=4)
EPOCH = LeaderEpoch(1)


class ToldClock:
    """Shows what it is told to show."""

    def __init__(self, ms: int = START_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> float:
        return float(self.ms)


def simulated_disk() -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_directory("/")
    return disk


def batch(
    count: int = 1,
    *,
    value: bytes = b"value",
    timestamps: Sequence[int] = (),
    producer_id: int = -1,
    producer_epoch: int = 0,
    sequence: int = 0,
    append_time: bool = False,
    codec: int = 0,
) -> bytearray:
    """A batch as a producer sends it; timestamps are those of the records, or all the same."""
    stamps = list(timestamps) or [START_MS] * count
    records = [Record(n, stamp, b"key-%d" % n, value) for n, stamp in enumerate(stamps)]
    known = producer_id >= 0
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch if known else -1,
        base_sequence=sequence if known else -1,
        append_time=append_time,
        codec=codec,
    )


def append(log: PartitionLog, sent: bytearray, epoch: int = EPOCH) -> AppendInfo:
    return log.append([(0, parse_header(sent))], memoryview(sent), LeaderEpoch(epoch))


def fill(log: PartitionLog, batches: int, *, size: int = 100, step_ms: int = 10) -> None:
    """Single-record batches of about `size` bytes, their timestamps `step_ms` apart."""
    value = b"x" * max(0, size - 75)
    for number in range(batches):
        append(log, batch(value=value, timestamps=[START_MS + number * step_ms]))


def read_all(log: PartitionLog, max_bytes: int = 1000) -> list[BatchHeader]:
    """Every batch from the log start to the log end, read as a consumer would."""
    found: list[BatchHeader] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, max_bytes, log.log_end_offset, at_least_one=True)
        assert data, f"nothing to read at {offset}"
        found += [header for _, header in iterate_headers(data)]
        offset = Offset(found[-1].last_offset + 1)
    return found


def open_log(
    files: FileSystem,
    config: LogConfig | None = None,
    *,
    clock: ToldClock | None = None,
    recovery_point: int | None = 0,
    log_start_offset: int = 0,
    clean: bool = False,
) -> PartitionLog:
    return PartitionLog.open(
        files,
        "/data/orders-0",
        config or LogConfig(),
        clock or ToldClock(),
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        clean=clean,
    )


def open_directory(
    files: FileSystem, path: str = "/data", *, clock: ToldClock | None = None, node_id: int = 0
) -> LogDirectory:
    randomness = SeededRandomness(Random(1))
    return LogDirectory.open(files, path, clock or ToldClock(), randomness, node_id=NodeId(node_id))
