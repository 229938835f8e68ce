"""The reader without I/O: which fetches to send, what to make of their answers.

One fetch per broker is in flight at a time, and the next one is sent while the records of the
last are still being read. A face calls `plan` for requests, `on_response` with their outcome,
and `take`, `take_one` or `take_chunks` for what has arrived.
"""

from collections.abc import Iterable, Mapping
from uuid import UUID

from headrace.client.core.errors import error_for
from headrace.client.core.fetch_request import PlannedFetch, fetch_request
from headrace.client.core.fetch_session import SESSION_ERRORS, FetchSession, SessionRequest
from headrace.client.core.fetched import Cursor, Wants, decode_chunk, whole_batches
from headrace.client.core.lookups import STALE_METADATA, by_leader, list_offsets
from headrace.client.core.models import (
    EARLIEST,
    LATEST,
    FetchedChunk,
    OffsetSpec,
    ReceivedRecord,
)
from headrace.client.core.operations import ClientOperation, Session, retrying
from headrace.client.core.settings import ReaderSettings
from headrace.core.errors import ErrorCode, HeadraceError, OffsetOutOfRange
from headrace.core.ids import NO_TOPIC_ID, LeaderEpoch, NodeId, TopicPartition
from headrace.network.address import BrokerAddress
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.fetch import FetchPartition, FetchResponse, PartitionData
from headrace.protocol.records.decode import Record

# A lookup gets at least this long, or a caller that polls without waiting would never finish one.
LOOKUP_MS_MIN = 50

_LAST_VERSION_BY_NAME = 12
_RESET = {"earliest": EARLIEST, "latest": LATEST}


class Fetcher:
    """Cursors for the assigned partitions, and the fetches that move them."""

    def __init__(self, session: Session, settings: ReaderSettings, channel: int) -> None:
        self._session = session
        self.channel = channel
        self._settings = settings
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._iterated: Cursor | None = None
        self._specs: dict[TopicPartition, OffsetSpec] = {}
        self._busy: set[NodeId] = set()
        self._fetch_sessions: dict[NodeId, FetchSession] = {}
        self._last_error: HeadraceError | None = None

    # -- what to read

    def assign(self, assignment: Mapping[TopicPartition, int | OffsetSpec]) -> None:
        """Read these partitions and no others; those already read start anew as given."""
        self._cursors = {}
        self._iterated = None
        self._specs = {}
        for partition, start in assignment.items():
            key = TopicPartition(*partition)
            self._cursors[key] = Cursor(key)
            self.seek(key, start)

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these too, once `seek` has said from where; the others go on undisturbed."""
        for partition in partitions:
            if partition not in self._cursors:
                self._cursors[partition] = Cursor(partition)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these; what was fetched ahead of them is dropped."""
        for partition in partitions:
            if self._cursors.pop(partition, None) is self._iterated:
                self._iterated = None
            self._specs.pop(partition, None)

    def seek(self, partition: TopicPartition, start: int | OffsetSpec) -> None:
        """Go on from another place; what was fetched ahead is dropped."""
        cursor = self.cursor(partition)
        self._specs.pop(cursor.partition, None)
        if isinstance(start, OffsetSpec):
            cursor.move(None)
            self._specs[cursor.partition] = start
        elif start < 0:
            raise OffsetOutOfRange(f"{partition}: offset {start} is negative")
        else:
            cursor.move(start)

    def cursor(self, partition: TopicPartition) -> Cursor:
        """The partition's state; a KeyError's kinder cousin if it is not assigned."""
        cursor = self._cursors.get(partition)
        if cursor is None:
            raise error_for(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "not assigned to this reader", str(partition)
            )
        return cursor

    @property
    def cursors(self) -> list[Cursor]:
        return list(self._cursors.values())

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._cursors)

    @property
    def last_error(self) -> HeadraceError | None:
        """Why a broker cannot be reached, while partitions wait for it; None when all is well."""
        if not any(cursor.failures for cursor in self._cursors.values()):
            self._last_error = None
        return self._last_error

    # -- what must be known first

    def needs_lookup(self, now_ms: float) -> bool:
        """Whether `look_up` must run before every partition can be fetched."""
        if self._specs:
            return True
        cluster, age = self._session.cluster, self._session.settings.metadata_age_ms_max
        return any(
            cluster.leader(partition) is None or cluster.is_stale(partition.topic, now_ms, age)
            for partition in self._cursors
        )

    def look_up(self) -> ClientOperation[None]:
        """Find leaders, and offsets for the places given by meaning or time."""
        yield from retrying(self._session, lambda: by_leader(self._session, self._cursors))
        yield from self.resolve_offsets(dict(self._specs))

    @property
    def unresolved_offsets(self) -> dict[TopicPartition, OffsetSpec]:
        """The partitions that shall go on from a place whose offset is not known yet."""
        return dict(self._specs)

    def resolve_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], timeout_ms: float | None = None
    ) -> ClientOperation[None]:
        """Find the offsets of places given by meaning or time, and go there."""
        if not specs:
            return
        found = yield from list_offsets(
            self._session,
            specs,
            read_committed=self._settings.isolation == "read_committed",
            timeout_ms=timeout_ms,
        )
        missing = {partition: LATEST for partition, listed in found.items() if listed.offset < 0}
        if missing:
            # Nothing is that late: what comes next is what the caller asked for.
            found.update((yield from list_offsets(self._session, missing)))
        for partition, listed in found.items():
            if self._specs.get(partition) is specs[partition]:
                del self._specs[partition]
                self._cursors[partition].move(listed.offset)

    # -- fetches out

    def plan(self, now_ms: float) -> list[PlannedFetch]:
        """A fetch for every broker that has none in flight and something to fetch."""
        by_node: dict[NodeId, list[Cursor]] = {}
        for partition, cursor in self._cursors.items():
            if self._is_fetchable(cursor, now_ms):
                node = self._session.cluster.leader(partition)
                if node is not None and node not in self._busy:
                    by_node.setdefault(node, []).append(cursor)
        return [self._request(node, cursors) for node, cursors in by_node.items()]

    def _is_fetchable(self, cursor: Cursor, now_ms: float) -> bool:
        return (
            cursor.position is not None
            and not cursor.in_flight
            and not cursor.is_paused
            and cursor.error is None
            and cursor.retry_at_ms <= now_ms
            and (not cursor.chunks or cursor.buffered_bytes < self._settings.prefetch_bytes)
        )

    def _request(self, node: NodeId, cursors: Iterable[Cursor]) -> PlannedFetch:
        cluster, settings = self._session.cluster, self._settings
        planned = {cursor.partition: (cursor, cursor.generation) for cursor in cursors}
        wanted: dict[TopicPartition, tuple[UUID, FetchPartition]] = {}
        for partition, (cursor, _) in planned.items():
            cursor.in_flight = True
            wanted[partition] = (
                cluster.topic_id(partition.topic),
                FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=cluster.leader_epoch(partition),
                    fetch_offset=cursor.fetch_offset,
                    partition_max_bytes=settings.partition_bytes_max,
                ),
            )
        by_id = all(topic_id != NO_TOPIC_ID for topic_id, _ in wanted.values())
        send = SendRequest(
            node,
            fetch_request(settings, self._session_request(node, wanted), wanted),
            FetchResponse,
            self._session.settings.request_timeout_ms + settings.fetch_wait_ms_max,
            version_max=1000 if by_id else _LAST_VERSION_BY_NAME,
            channel=self.channel,
        )
        self._busy.add(node)
        names = {topic_id: partition.topic for partition, (topic_id, _) in wanted.items()}
        return PlannedFetch(send, planned, names)

    def _session_request(
        self, node: NodeId, wanted: Mapping[TopicPartition, tuple[UUID, FetchPartition]]
    ) -> SessionRequest:
        if self._settings.sessions:
            return self._fetch_sessions.setdefault(node, FetchSession()).request(wanted)
        return SessionRequest(0, -1, list(wanted), [])

    # -- answers in

    def on_response(
        self, call: PlannedFetch, response: Message | HeadraceError, now_ms: float
    ) -> None:
        """Take what came of a fetch."""
        self._busy.discard(call.send.node)
        for cursor, _ in call.cursors.values():
            cursor.in_flight = False
        session = self._fetch_sessions.get(call.send.node)
        if isinstance(response, HeadraceError):
            if session is not None:
                session.reset()
            self._last_error = response
            self._all_failed(call, response, now_ms)
            return
        assert isinstance(response, FetchResponse)
        if session is not None:
            if response.error_code in SESSION_ERRORS:
                session.reset()
                return
            session.on_response(response.session_id)
        if response.error_code:
            self._all_failed(call, error_for(response.error_code, None, "fetch"), now_ms)
            return
        for node in response.node_endpoints:
            self._session.cluster.add_broker(
                BrokerAddress(NodeId(node.node_id), node.host, node.port, node.rack)
            )
        for topic in response.responses:
            name = topic.topic or call.names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                wanted = self._still_wanted(call, partition)
                if wanted is not None:
                    self._add_fetched(wanted, data, now_ms)

    def _all_failed(self, call: PlannedFetch, error: HeadraceError, now_ms: float) -> None:
        for partition in call.cursors:
            cursor = self._still_wanted(call, partition)
            if cursor is not None:
                self._failed(cursor, error, now_ms)

    def _still_wanted(self, call: PlannedFetch, partition: TopicPartition) -> Cursor | None:
        """The cursor, unless a seek or a new assignment came after the fetch was planned."""
        cursor, generation = call.cursors.get(partition, (None, 0))
        if cursor is None or self._cursors.get(partition) is not cursor:
            return None
        return cursor if cursor.generation == generation else None

    def _add_fetched(self, cursor: Cursor, data: PartitionData, now_ms: float) -> None:
        if data.error_code:
            self._partition_failed(cursor, data, now_ms)
            return
        cursor.failures = 0
        cursor.high_watermark = data.high_watermark
        cursor.last_stable_offset = data.last_stable_offset
        cursor.log_start_offset = data.log_start_offset
        if not data.records:
            return
        try:
            batches, last_offset = whole_batches(data.records)
        except HeadraceError as error:
            cursor.error = error
            return
        if last_offset is None:
            return
        aborted = [(txn.producer_id, txn.first_offset) for txn in data.aborted_transactions or ()]
        cursor.chunks.append(
            FetchedChunk(
                cursor.partition,
                cursor.fetch_offset,
                batches,
                data.high_watermark,
                data.last_stable_offset,
                data.log_start_offset,
                aborted,
            )
        )
        cursor.buffered_bytes += len(batches)
        cursor.fetch_offset = max(cursor.fetch_offset, last_offset + 1)
        # To the back of the line, so that a small fetch_bytes_max starves nobody.
        self._cursors[cursor.partition] = self._cursors.pop(cursor.partition)

    def _partition_failed(self, cursor: Cursor, data: PartitionData, now_ms: float) -> None:
        leader = data.current_leader
        if leader.leader_id >= 0:
            self._session.cluster.update_leader(
                cursor.partition, NodeId(leader.leader_id), LeaderEpoch(leader.leader_epoch)
            )
        error = error_for(data.error_code, None, f"fetch of {cursor.partition}")
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(cursor)
        else:
            self._failed(cursor, error, now_ms)

    def _out_of_range(self, cursor: Cursor) -> None:
        reset = _RESET.get(self._settings.offset_reset)
        if cursor.chunks or cursor.reading is not None:
            return  # ask again when what is already here has been read
        if reset is not None:
            self.seek(cursor.partition, reset)
        else:
            cursor.error = OffsetOutOfRange(
                f"{cursor.partition}: offset {cursor.fetch_offset} does not exist (any more); seek "
                "to another offset, or set offset_reset to 'earliest' or 'latest'"
            )

    def _failed(self, cursor: Cursor, error: HeadraceError, now_ms: float) -> None:
        if error.code in STALE_METADATA:
            self._session.cluster.mark_stale([cursor.partition.topic])
        if error.retriable:
            cursor.failures += 1
            cursor.retry_at_ms = now_ms + self._session.backoff.delay_ms(cursor.failures)
        else:
            cursor.error = error

    # -- records out

    def take(
        self, records_max: int, wants: Wants | None = None
    ) -> dict[TopicPartition, list[Record]]:
        """Decode up to about `records_max` records; the rest of a batch waits for the next call."""
        taken: dict[TopicPartition, list[Record]] = {}
        left = records_max
        for cursor in list(self._cursors.values()):
            if left <= 0:
                break
            records = self._read(cursor, left, wants)
            if records:
                taken[cursor.partition] = records
                left -= len(records)
        return taken

    def take_one(self) -> ReceivedRecord | None:
        """The next record of any partition; positions move behind no other."""
        record = self.next_of_chunk()
        if record is not None:
            return record
        for (topic, number), cursor in list(self._cursors.items()):
            records = self._read(cursor, 1)
            if records:
                self._iterated = cursor
                return ReceivedRecord(topic, number, *records[0])
        return None

    def next_of_chunk(self) -> ReceivedRecord | None:
        """The next record of the chunk that `take_one` has begun: cheap, and sends nothing."""
        cursor = self._iterated
        if cursor is None or cursor.is_paused or not self._has_record(cursor):
            return None
        record = cursor.batch[cursor.batch_at]
        cursor.batch_at += 1
        cursor.position = record.offset + 1
        cursor.leader_epoch = cursor.batch_epoch
        topic, number = cursor.partition
        return ReceivedRecord(topic, number, *record)

    def _read(self, cursor: Cursor, records_max: int, wants: Wants | None = None) -> list[Record]:
        out: list[Record] = []
        if cursor.is_paused or cursor.position is None:
            return out
        while len(out) < records_max:
            if self._has_record(cursor):
                out += cursor.take(records_max - len(out), wants)
                if wants is not None and cursor.batch_at < len(cursor.batch):
                    break  # the next one is not wanted
            elif not self._begin_chunk(cursor):
                break
        return out

    def _has_record(self, cursor: Cursor) -> bool:
        try:
            return cursor.has_record()
        except HeadraceError as error:
            # What was read before it is handed out first; nothing behind it is, until a seek.
            cursor.move(cursor.position, cursor.leader_epoch)
            cursor.error = error
            return False

    def _begin_chunk(self, cursor: Cursor) -> bool:
        if not cursor.chunks:
            # Batches at the end may have been all markers or aborted: step over them.
            if cursor.error is None and cursor.position is not None:
                cursor.position = max(cursor.position, cursor.fetch_offset)
            return False
        chunk = cursor.chunks.pop(0)
        cursor.buffered_bytes -= len(chunk.data)
        assert cursor.position is not None
        cursor.reading = chunk
        cursor.decoded = decode_chunk(chunk, cursor.position, check_crc=self._settings.check_crc)
        return True

    def take_chunks(self) -> list[FetchedChunk]:
        """All that has arrived, undecoded; the position moves behind it."""
        out: list[FetchedChunk] = []
        for cursor in self._cursors.values():
            if cursor.is_paused:
                continue
            begun = cursor.take_rest()
            if begun is not None:
                out.append(begun)
            if begun is not None or cursor.chunks:
                out.extend(cursor.chunks)
                cursor.chunks.clear()
                cursor.buffered_bytes = 0
                cursor.position = cursor.fetch_offset
        return out

    def raise_error(self) -> None:
        """Raise the first partition's error, once everything before it has been read."""
        for cursor in self._cursors.values():
            if cursor.error is not None and not cursor.chunks:
                error, cursor.error = cursor.error, None
                raise error

    def next_retry_ms(self, now_ms: float) -> float:
        """When a partition that failed may be tried again; infinity if none waits."""
        waits = [c.retry_at_ms for c in self._cursors.values() if c.retry_at_ms > now_ms]
        return min(waits, default=float("inf"))
