"""A bystander that asks, again and again, what the group has committed and how far the log goes."""

from __future__ import annotations

import threading

from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.support.group_history import Bounds, GroupHistory, Observed, now
from tests.support.group_wire import WireConnection

_EARLIEST, _LATEST = -2, -1
_PAUSE_SECONDS = 0.02


class Watcher:
    """Its own thread and connection; a broker that is away is asked again when it is back."""

    def __init__(
        self, history: GroupHistory, port: int, group: str, topic: str, partitions: int
    ) -> None:
        self._history = history
        self._port = port
        self._group = group
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self._turn = 0
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                connection = WireConnection(self._port, "watcher")
            except OSError:
                self._stopping.wait(_PAUSE_SECONDS)
                continue
            try:
                while not self._stopping.wait(_PAUSE_SECONDS):
                    self._look_at_offsets(connection)
                    self._look_at_bounds(connection)
            except OSError:
                pass
            finally:
                connection.close()

    def _look_at_offsets(self, connection: WireConnection) -> None:
        asked = OffsetFetchRequestTopics(
            name=self._topic, partition_indexes=list(range(self._partitions))
        )
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self._group, topics=[asked])]
        )
        began = now()
        (found,) = connection.ask(request, 8, OffsetFetchResponse).groups
        ended = now()
        if found.error_code != 0:
            return  # not loaded yet: it says so rather than telling something wrong
        for each in found.topics[0].partitions:
            if each.error_code == 0:
                place = (self._topic, each.partition_index)
                self._history.observed.append(Observed(place, began, ended, each.committed_offset))

    def _look_at_bounds(self, connection: WireConnection) -> None:
        """Earliest first and latest last, so that records written meanwhile do no harm."""
        index = self._turn % self._partitions
        self._turn += 1
        earliest = self._list_offset(connection, index, _EARLIEST)
        stable = self._list_offset(connection, index, _LATEST, isolation_level=1)
        latest = self._list_offset(connection, index, _LATEST)
        if earliest is None or stable is None or latest is None or latest == 0:
            return
        timestamp = 1 + (self._turn * 37) % latest
        found = self._list_offset(connection, index, timestamp)
        if found is not None:
            self._history.bounds.append(
                Bounds((self._topic, index), earliest, stable, latest, timestamp, found)
            )

    def _list_offset(
        self, connection: WireConnection, index: int, timestamp: int, isolation_level: int = 0
    ) -> int | None:
        asked = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation_level,
            topics=[ListOffsetsTopic(name=self._topic, partitions=[asked])],
        )
        found = connection.ask(request, 6, ListOffsetsResponse).topics[0].partitions[0]
        return found.offset if found.error_code == 0 else None
