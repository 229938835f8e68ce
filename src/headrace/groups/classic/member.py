"""One member of a classic group."""

from dataclasses import dataclass

from headrace.coordinator.result import Reply

Protocols = tuple[tuple[str, bytes], ...]
"""Names and metadata of the assignors a member offers, the best liked first."""


@dataclass(slots=True)
class ClassicMember:
    """What a member told about itself, its share, and the requests of it that are parked."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_reply: Reply | None = None
    """Its JoinGroup, parked until the rebalance is through."""
    sync_reply: Reply | None = None
    """Its SyncGroup, parked until the leader has sent the assignment."""
    is_new: bool = False
    """Has not been told its id yet, so it cannot send heartbeats."""
    deadline_ms: int | None = None
    """When it counts as gone unless it is heard of."""

    @property
    def is_waiting(self) -> bool:
        """Has a request with us, so we are the ones who are late."""
        return self.join_reply is not None or self.sync_reply is not None

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The member's favourite among the protocols that everybody has."""
        return next(name for name, _ in self.protocols if name in candidates)
