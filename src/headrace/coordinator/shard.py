"""What a coordinator brings to the runtime: a pure shard for each partition of its topic."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from headrace.coordinator.result import Reply, TimerKey
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image

RecordIn = TypeVar("RecordIn", contravariant=True)
RecordOut = TypeVar("RecordOut", covariant=True)
ResultIn = TypeVar("ResultIn", contravariant=True)


class CoordinatorShard(Protocol[RecordIn, ResultIn]):
    """The state of one partition, in place: a decision changes it and hands over its records.

    It does no I/O and keeps no time. `ResultIn` is the `Result` that its operations are given.
    """

    def replay(self, record: RecordIn, producer_id: int = -1) -> None:
        """Bring one record of the log into the state, at a load; must accept whatever was ever
        written. With a producer id it is part of a transaction of that producer."""
        ...

    def replay_marker(self, producer_id: int, epoch: int, commit: bool) -> None:
        """The transaction of a producer has ended: keep or drop what it wrote."""
        ...

    def loaded(self, result: ResultIn) -> None:
        """The whole log is in; time begins to run for what is in it."""
        ...

    def timer(self, key: TimerKey, result: ResultIn) -> None:
        """Look what time has done; may be called early and in vain."""
        ...

    def metadata_changed(
        self, before: Image, image: Image, delta: Delta
    ) -> Iterable[Callable[[ResultIn], None]]:
        """What a change of the cluster comes to, in pieces: others have their turn after each."""
        ...

    def abandoned(self) -> Iterable[Reply]:
        """Who waits in the shard for something to happen; it will not happen here."""
        ...


class RecordDecoder(Protocol[RecordOut]):
    """Reads the records of one log; may keep what occurs in it again and again."""

    def decode(self, key: bytes, value: bytes | None) -> RecordOut | None:
        """The record that was stored; None for a kind that this broker does not keep."""
        ...
