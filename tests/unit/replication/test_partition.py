"""What a partition shows: the high watermark, who waits for it, and who may append."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, HeadraceError, OffsetOutOfRange
from headrace.core.ids import LeaderEpoch, NodeId, Offset, TopicPartition
from headrace.core.topic_configs import TopicConfig
from headrace.log.partition_log import AppendInfo, PartitionLog
from headrace.metadata.image import PartitionRegistration
from headrace.node.system import RealClock, RealRandomness
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import HEADER_SIZE
from headrace.protocol.records.patch import refresh_crc
from headrace.replication.flush_wait import unflushed, when_flushed
from headrace.replication.partition import FlushRequest, Partition
from headrace.replication.produce import append_produced
from headrace.replication.reads import FetchIsolation, FetchPosition
from headrace.replication.settings import TopicSettings
from headrace.testing.unsynced_files import UnsyncedFileSystem

NOW_MS = 1_700_000_000_000
ALL = -1
ALONE = PartitionRegistration(NodeId(0), 1, 0, (0,), (0,))


@pytest.fixture
def files() -> Iterator[UnsyncedFileSystem]:
    files = UnsyncedFileSystem()
    yield files
    files.close()


@pytest.fixture
def make(files: UnsyncedFileSystem, tmp_path: Path) -> Callable[..., Partition]:
    def make(request_flush: FlushRequest | None = None, **configs: str) -> Partition:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        broker = BrokerConfig()
        settings = TopicSettings(TopicConfig.resolve(overrides, broker), broker)
        log = PartitionLog.open(files, str(tmp_path / "t-0"), settings.log, RealClock())
        partition = Partition(
            TopicPartition("t", 0),
            RealRandomness().uuid(),
            log,
            settings,
            request_flush=request_flush,
        )
        partition.become_leader(ALONE)
        return partition

    return make


def produce(partition: Partition, count: int = 1, acks: int = ALL) -> None:
    batch = encode_batch([Record(index, NOW_MS, None, b"v", ()) for index in range(count)])
    append_produced(
        partition, memoryview(bytearray(batch)), acks=acks, now_ms=NOW_MS, produce_version=9
    )


class Counting:
    def __init__(self) -> None:
        self.count = 0
        self.more_bytes = 0

    def advanced(self, _: Partition, more_bytes: int) -> None:
        self.count += 1
        self.more_bytes += more_bytes

    def gone(self, _: Partition) -> None:
        self.count += 1


def test_without_flushes_what_is_written_is_visible(make: Callable[..., Partition]) -> None:
    partition = make()
    produce(partition, 3)
    assert partition.high_watermark == 3


def test_with_flushes_only_what_is_flushed_is_visible(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition, 3)
    before = partition.high_watermark
    partition.flushed(Offset(2), partition.appended_bytes)
    assert (before, partition.high_watermark) == (0, 2)


def test_a_flush_is_asked_for_on_behalf_of_who_waits(make: Callable[..., Partition]) -> None:
    askers: list[object | None] = []
    partition = make(request_flush=lambda _, asker: askers.append(asker))
    produce(partition, acks=1)
    assert askers == [None]
    partition.when_committed(Offset(1), lambda _: None, "producer")
    assert (askers.pop(), partition.flush_requester) == ("producer", "producer")
    partition.flushed(Offset(1), partition.appended_bytes)
    assert [partition.flush_requester] == [None]
    reader = Counting()
    partition.add_listener(reader)
    assert askers == [None], "a reader at the end of a flushed log waits for nothing yet"
    produce(partition, acks=1)
    assert askers.pop() is reader
    assert [partition.flush_requester] == [reader]
    late = Counting()
    partition.add_listener(late)
    assert askers.pop() is late
    partition.flushed(Offset(2), partition.appended_bytes)
    partition.request_flush("another reader")
    assert askers == [None]


def test_a_waiter_that_fails_does_not_keep_the_others_from_being_told(
    make: Callable[..., Partition], caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: ErrorCode) -> None:
        raise RuntimeError("a mistake of one")

    class Failing:
        def advanced(self, _: Partition, __: int) -> None:
            raise RuntimeError("a mistake of another")

        def gone(self, _: Partition) -> None:
            raise RuntimeError("a mistake of another")

    partition = make(request_flush=lambda _, __: None)
    partition.add_listener(Failing())
    watcher = Counting()
    partition.add_listener(watcher)
    produce(partition, 3)
    outcomes: list[ErrorCode] = []
    for call in (fail, outcomes.append):
        partition.when_committed(Offset(1), call)
        partition.when_committed(Offset(3), call)
    partition.flushed(Offset(1), partition.appended_bytes)
    assert (outcomes, watcher.count) == ([], 1), "offsets are told in order"
    partition.flushed(Offset(3), partition.appended_bytes)
    assert (outcomes, watcher.count) == ([ErrorCode.NONE] * 2, 2)
    for call in (fail, outcomes.append):
        partition.when_committed(Offset(4), call)
    partition.close(ErrorCode.KAFKA_STORAGE_ERROR)
    assert (outcomes[2:], watcher.count) == ([ErrorCode.KAFKA_STORAGE_ERROR], 3)
    assert "a mistake of one" in caplog.text


def test_what_a_crash_left_unflushed_is_flushed_before_it_is_shown(
    make: Callable[..., Partition], files: UnsyncedFileSystem, tmp_path: Path
) -> None:
    killed = make(request_flush=lambda _, __: None)
    produce(killed, 3)
    # Opened again without a close: what a killed process leaves behind.
    dirty: list[Partition] = []
    log = PartitionLog.open(files, str(tmp_path / "t-0"), killed.settings.log, RealClock())
    found = Partition(
        killed.id,
        killed.topic_id,
        log,
        killed.settings,
        request_flush=lambda each, _: dirty.append(each),
    )
    assert log.log_end_offset == 3
    found.become_leader(ALONE)
    assert (found.high_watermark, dirty) == (0, [found])
    found.flushed(log.flush(), 0)
    assert found.high_watermark == 3


def test_the_high_watermark_never_moves_back(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition, 3)
    partition.flushed(Offset(3), partition.appended_bytes)
    partition.flushed(Offset(1), 0)
    assert partition.high_watermark == 3


def test_waiters_are_called_in_order_once_their_offset_is_committed(
    make: Callable[..., Partition],
) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition, 3)
    called: list[tuple[int, ErrorCode]] = []

    def waiter(offset: int) -> Callable[[ErrorCode], None]:
        return lambda code: called.append((offset, code))

    for offset in (1, 2, 3):
        partition.when_committed(Offset(offset), waiter(offset))
    partition.flushed(Offset(2), 0)
    assert called == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    partition.flushed(Offset(3), 0)
    assert called[2:] == [(3, ErrorCode.NONE)]


def test_waiters_learn_that_the_disk_failed(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition)
    outcome: list[ErrorCode] = []
    partition.when_committed(Offset(1), outcome.append)
    partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
    assert outcome == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_watchers_are_told_of_more_and_of_the_end(make: Callable[..., Partition]) -> None:
    partition = make()
    watcher = Counting()
    partition.add_listener(watcher)
    produce(partition)
    assert watcher.count == 1
    partition.remove_listener(watcher)
    produce(partition)
    assert watcher.count == 1
    partition.add_listener(watcher)
    partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert watcher.count == 2


def test_visible_bytes_count_what_waiting_fetches_could_get(
    make: Callable[..., Partition],
) -> None:
    partition = make(request_flush=lambda _, __: None)
    watcher = Counting()
    partition.add_listener(watcher)
    produce(partition, 2)
    first = partition.appended_bytes
    produce(partition, 5)
    partition.flushed(Offset(2), first)
    assert (partition.visible_bytes, watcher.more_bytes) == (first, first)
    partition.flushed(Offset(7), first)
    assert partition.visible_bytes == partition.appended_bytes > first
    assert watcher.more_bytes == partition.visible_bytes


def test_too_few_replicas_in_sync_refuse_acks_all_only(make: Callable[..., Partition]) -> None:
    partition = make(min_insync_replicas="2")
    partition.become_leader(ALONE._replace(replicas=(0, 1, 2)))
    with pytest.raises(ApiError) as refused:
        produce(partition)
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert partition.log.log_end_offset == 0
    produce(partition, acks=1)
    assert partition.log.log_end_offset == 1


def test_a_topic_with_one_replica_is_not_asked_for_two_in_sync(
    make: Callable[..., Partition],
) -> None:
    partition = make(min_insync_replicas="2")
    produce(partition)
    assert partition.log.log_end_offset == 1


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_a_client_with_another_idea_of_the_epoch_is_refused(
    make: Callable[..., Partition], epoch: int, code: ErrorCode
) -> None:
    partition = make()
    with pytest.raises(ApiError) as refused:
        partition.require_leader(epoch)
    assert refused.value.code is code


@pytest.mark.parametrize("epoch", [-1, 1])
def test_a_client_with_no_or_the_right_epoch_is_served(
    make: Callable[..., Partition], epoch: int
) -> None:
    make().require_leader(epoch)


def test_only_committed_records_can_be_deleted(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition, 5)
    partition.flushed(Offset(3), 0)
    with pytest.raises(OffsetOutOfRange):
        partition.delete_records_before(Offset(4))
    assert partition.delete_records_before(Offset(3)) == 3
    # Deleting what is deleted already is fine.
    assert partition.delete_records_before(Offset(1)) == 3


def test_append_time_replaces_the_producers_timestamp(make: Callable[..., Partition]) -> None:
    partition = make(message_timestamp_type="LogAppendTime")
    batch = memoryview(bytearray(encode_batch([Record(0, 5, None, b"v", ())])))
    info = append_produced(partition, batch, acks=1, now_ms=NOW_MS, produce_version=9)
    assert info.append_time_ms == NOW_MS
    found = partition.log.find_by_timestamp(NOW_MS, partition.high_watermark)
    assert found is not None
    assert found[:2] == (0, NOW_MS)


HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("configs", "later_ms"),
    [
        ({"message_timestamp_before_max_ms": str(HOUR_MS)}, 2 * HOUR_MS),
        ({"message_timestamp_after_max_ms": str(HOUR_MS)}, -2 * HOUR_MS),
        ({"max_message_bytes": "100"}, 0),
        ({"cleanup_policy": "compact"}, 0),
    ],
)
def test_what_is_in_the_log_is_acknowledged_again_though_it_would_be_refused_now(
    make: Callable[..., Partition], configs: dict[str, str], later_ms: int
) -> None:
    partition = make()
    record = Record(0, NOW_MS, None, b"v" * 100, ())
    sent = bytes(encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=0))

    def send(data: bytes, now_ms: int) -> AppendInfo:
        copy = memoryview(bytearray(data))
        return append_produced(partition, copy, acks=1, now_ms=now_ms, produce_version=9)

    first = send(sent, NOW_MS)
    partition.settings = make(**configs).settings
    again = send(sent, NOW_MS + later_ms)
    assert (again.first_offset, again.duplicate) == (first.first_offset, True)
    following = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=1)
    damaged = sent[:-1] + b"?"
    for other in (bytes(following), damaged):
        with pytest.raises(HeadraceError):
            send(other, NOW_MS + later_ms)
    assert partition.log.log_end_offset == 1


async def test_whoever_waits_for_the_disk_hears_that_it_failed(
    make: Callable[..., Partition],
) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition, 1, acks=1)
    called: list[bool] = []
    when_flushed(unflushed([partition]), lambda: called.append(True))
    before = list(called)
    partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
    assert (before, called) == ([], [True])


def test_garbage_behind_a_codec_is_refused_where_it_would_be_recompressed(
    make: Callable[..., Partition],
) -> None:
    partition = make(compression_type="zstd")
    batch = bytearray(encode_batch([Record(0, NOW_MS, None, b"v" * 100, ())], codec=1))
    batch[HEADER_SIZE + 20 :] = bytes(len(batch) - HEADER_SIZE - 20)
    refresh_crc(batch, 0)
    with pytest.raises(HeadraceError) as refused:
        append_produced(partition, memoryview(batch), acks=1, now_ms=NOW_MS, produce_version=9)
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR  # as Kafka answers
    assert partition.log.log_end_offset == 0


def test_records_of_a_compacted_topic_are_not_deleted(make: Callable[..., Partition]) -> None:
    partition = make(cleanup_policy="compact")
    with pytest.raises(ApiError) as refused:
        partition.delete_records_before(Offset(0))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_however_many_readers_wait_each_leaves_without_a_look_at_the_others(
    make: Callable[..., Partition],
) -> None:
    looks = 0

    class Reader:
        def advanced(self, partition: Partition, more_bytes: int) -> None:
            raise AssertionError(f"nothing has come: {partition.id} {more_bytes}")

        def gone(self, partition: Partition) -> None:
            raise AssertionError(f"it is here: {partition.id}")

        def __hash__(self) -> int:
            return id(self) // 16

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return self is other

    partition = make()
    readers = [Reader() for _ in range(1_000)]
    for reader in readers:
        partition.add_listener(reader)
    for reader in reversed(readers):
        partition.remove_listener(reader)
    assert looks < 10 * len(readers)
    produce(partition)


# Roles

ME, OTHER, THIRD = NodeId(0), NodeId(1), NodeId(2)
LEADING = PartitionRegistration(ME, 1, 0, (0, 1, 2), (0, 1, 2))
FOLLOWING = PartitionRegistration(OTHER, 2, 1, (0, 1, 2), (0, 1, 2))


def code_of(call: Callable[[], object]) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        call()
    return refused.value.code


def read(partition: Partition, offset: int, isolation: FetchIsolation) -> int:
    """The offset behind what was found."""
    position = FetchPosition(Offset(offset))
    return partition.read(position, isolation, 1 << 20, at_least_one=True).next_offset


def test_a_follower_is_neither_written_nor_read(make: Callable[..., Partition]) -> None:
    partition = make()
    produce(partition, 3)
    partition.become_follower(FOLLOWING)
    assert not partition.is_leader
    refused = [
        code_of(lambda: produce(partition)),
        code_of(lambda: read(partition, 0, FetchIsolation.HIGH_WATERMARK)),
        code_of(lambda: read(partition, 0, FetchIsolation.LOG_END)),
        code_of(lambda: partition.end_offset_for_epoch(LeaderEpoch(1), -1)),
        code_of(lambda: partition.active_producers),
        code_of(lambda: partition.delete_records_before(Offset(1))),
        code_of(partition.require_leader),
    ]
    assert set(refused) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (partition.log.log_end_offset, partition.log.log_start_offset) == (3, 0)


def test_a_batch_that_is_known_is_still_refused_by_a_follower(
    make: Callable[..., Partition],
) -> None:
    partition = make()

    def send() -> AppendInfo:
        batch = encode_batch(
            [Record(0, NOW_MS, None, b"v", ())], producer_id=5, producer_epoch=0, base_sequence=0
        )
        return append_produced(
            partition, memoryview(bytearray(batch)), acks=1, now_ms=NOW_MS, produce_version=9
        )

    assert send().duplicate is False
    assert send().duplicate is True
    partition.become_follower(FOLLOWING)
    assert code_of(send) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_what_a_follower_flushes_commits_nothing(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition, 3)
    partition.become_follower(FOLLOWING)
    partition.flushed(Offset(3), partition.appended_bytes)
    assert (partition.is_flushed, partition.high_watermark) == (True, 0)
    # What it has flushed meanwhile is its own part of what it commits as a leader.
    partition.become_leader(ALONE._replace(leader_epoch=3))
    assert partition.high_watermark == 3


@pytest.mark.parametrize(
    ("replica_id", "isolation_level", "isolation"),
    [
        (-1, 0, FetchIsolation.HIGH_WATERMARK),
        (-1, 1, FetchIsolation.TXN_COMMITTED),
        (0, 0, FetchIsolation.LOG_END),
        (2, 1, FetchIsolation.LOG_END),
    ],
)
def test_a_follower_reads_to_the_end_and_a_consumer_what_it_asks_for(
    replica_id: int, isolation_level: int, isolation: FetchIsolation
) -> None:
    assert FetchIsolation.of(replica_id, isolation_level) is isolation


def test_whoever_waits_at_a_leader_that_resigns_is_told_so(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    outcomes: list[ErrorCode] = []
    watcher = Counting()
    for isolation in FetchIsolation:
        partition.add_listener(watcher, isolation)
    produce(partition)
    watcher.count = 0
    partition.when_committed(Offset(1), outcomes.append)
    partition.when_flushed(outcomes.append)
    partition.become_follower(FOLLOWING)
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    assert watcher.count == len(FetchIsolation)
    partition.become_follower(FOLLOWING._replace(leader_epoch=3))
    assert watcher.count == len(FetchIsolation), "it has said so before"


def test_whoever_still_holds_a_closed_partition_can_neither_write_nor_read(
    make: Callable[..., Partition],
) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition)
    partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    end = partition.log.log_end_offset
    for refused in (
        partial(produce, partition),
        partial(read, partition, 0, FetchIsolation.LOG_END),
    ):
        assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # A flush that was under way has nobody left to tell.
    partition.flushed(Offset(1), partition.appended_bytes)
    assert (partition.log.log_end_offset, partition.high_watermark) == (end, 0)


def test_a_renewed_epoch_keeps_who_waits(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    produce(partition)
    outcomes: list[ErrorCode] = []
    partition.when_committed(Offset(1), outcomes.append)
    partition.become_leader(ALONE._replace(leader_epoch=2))
    assert outcomes == []
    partition.flushed(Offset(1), partition.appended_bytes)
    assert outcomes == [ErrorCode.NONE]


def test_with_others_in_sync_a_flush_alone_commits_nothing(make: Callable[..., Partition]) -> None:
    partition = make(request_flush=lambda _, __: None)
    partition.become_leader(LEADING)
    produce(partition, 4)
    committed: list[ErrorCode] = []
    flushed: list[ErrorCode] = []
    partition.when_committed(Offset(4), committed.append)
    partition.when_flushed(flushed.append)
    partition.flushed(Offset(4), partition.appended_bytes)
    assert (partition.high_watermark, committed, flushed) == (0, [], [ErrorCode.NONE])
    partition.fetched_by(OTHER, Offset(4))
    partition.fetched_by(THIRD, Offset(3))
    assert (partition.high_watermark, committed) == (3, [])
    assert not partition.is_committed(Offset(4))
    # The controller takes the slow one out.
    partition.become_leader(LEADING._replace(partition_epoch=1, isr=(0, 1)))
    assert (partition.high_watermark, committed) == (4, [ErrorCode.NONE])
    assert partition.is_committed(Offset(4))


def test_followers_see_what_is_written_and_consumers_what_is_committed(
    make: Callable[..., Partition],
) -> None:
    partition = make(request_flush=lambda _, __: None)
    partition.become_leader(LEADING)
    waiting = {isolation: Counting() for isolation in FetchIsolation}
    for isolation, listener in waiting.items():
        partition.add_listener(listener, isolation)

    def woken() -> list[int]:
        return [listener.count for listener in waiting.values()]

    produce(partition, 4)
    assert woken() == [1, 0, 0]
    assert [read(partition, 0, isolation) for isolation in FetchIsolation] == [4, 0, 0]
    partition.flushed(Offset(4), partition.appended_bytes)
    for node in (OTHER, THIRD):
        partition.fetched_by(node, Offset(4))
    assert woken() == [1, 1, 1]
    assert [read(partition, 0, isolation) for isolation in FetchIsolation] == [4, 4, 4]
    assert len({listener.more_bytes for listener in waiting.values()}) == 1


def test_more_in_sync_asked_for_or_less_moves_the_high_watermark(
    make: Callable[..., Partition],
) -> None:
    partition = make(min_insync_replicas="2")
    partition.become_leader(LEADING._replace(isr=(0,)))
    produce(partition, acks=1)
    assert partition.high_watermark == 0
    broker = BrokerConfig()
    partition.update_settings(TopicSettings(TopicConfig.resolve({}, broker), broker))
    assert partition.high_watermark == 1


def test_a_reader_of_another_log_is_told_where_both_may_be_the_same(
    make: Callable[..., Partition],
) -> None:
    partition = make()
    produce(partition, 3)
    partition.become_leader(ALONE._replace(leader_epoch=4))
    position = FetchPosition(Offset(5), 4, 3)
    found = partition.read(position, FetchIsolation.LOG_END, 1 << 20, at_least_one=True)
    assert (found.diverging, found.records) == ((1, 3), None)


@pytest.mark.parametrize(
    "position",
    [
        pytest.param(FetchPosition(Offset(3), 4, 2), id="its log is another one"),
        pytest.param(FetchPosition(Offset(3), 3, -1), id="it knows an older leader"),
        pytest.param(FetchPosition(Offset(5), 4, -1), id="it is ahead of the leader"),
    ],
)
def test_a_follower_whose_fetch_is_not_served_has_nothing_of_the_leaders_log(
    make: Callable[..., Partition], position: FetchPosition
) -> None:
    partition = make()
    partition.become_leader(LEADING._replace(leader_epoch=2))
    produce(partition, 1, acks=1)
    partition.become_leader(LEADING._replace(leader_epoch=4, isr=(0, 1)))
    produce(partition, 2, acks=1)

    def fetch_from(position: FetchPosition) -> None:
        isolation = FetchIsolation.LOG_END
        partition.read(position, isolation, 1 << 20, at_least_one=True, replica=OTHER)

    with suppress(HeadraceError):
        fetch_from(position)
    assert partition.high_watermark == 0, "consumers would read what no other replica has"
    fetch_from(FetchPosition(Offset(3), 4, 4))
    assert partition.high_watermark == 3


def test_a_new_leader_does_not_say_where_the_log_ends_before_it_knows(
    make: Callable[..., Partition],
) -> None:
    partition = make()
    produce(partition, 3)
    partition.become_follower(FOLLOWING)
    partition.high_watermark = partition.last_stable_offset = Offset(1)
    partition.become_leader(LEADING._replace(leader_epoch=3))
    for isolation in (FetchIsolation.HIGH_WATERMARK, FetchIsolation.TXN_COMMITTED):
        unknown = partial(partition.latest_offset, isolation)
        assert code_of(unknown) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert partition.latest_offset(FetchIsolation.LOG_END) == 3
    for node in (OTHER, THIRD):
        partition.fetched_by(node, Offset(3))
    assert [partition.latest_offset(isolation) for isolation in FetchIsolation] == [3, 3, 3]
