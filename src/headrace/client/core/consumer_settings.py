"""What a consumer of a group can be told, as one frozen value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from headrace.client.core.settings import Isolation, ReaderSettings, at_least
from headrace.core.errors import InvalidConfig as InvalidSetting

GroupProtocol = Literal["classic", "consumer"]
ConsumerReset = Literal["earliest", "latest", "none"]

ASSIGNORS = ("range", "roundrobin", "cooperative-sticky")


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """How to be a member of a group, and how to read what it gives us.

    `group_protocol="classic"` works with every broker and every group: members agree among
    themselves, by one of `assignors`. With "consumer" (KIP-848) the broker assigns, by
    `server_assignor` or its own choice, and only the partitions that move stand still.
    `group_instance_id` makes a static member: it may be away for a session without a rebalance.

    `offset_reset` is where to begin when the group has no offset, or one that is gone: "none"
    raises. `auto_commit` commits, every `auto_commit_interval_ms` and before partitions go, what
    earlier polls handed out. A member whose program does not poll for `max_poll_interval_ms`
    leaves the group. Session and heartbeat times are the classic protocol's; with "consumer"
    the broker sets them.
    """

    group_id: str
    group_protocol: GroupProtocol = "classic"
    assignors: Sequence[str] = ("range", "cooperative-sticky")
    server_assignor: str | None = None
    group_instance_id: str | None = None
    offset_reset: ConsumerReset = "latest"
    auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    isolation: Isolation = "read_uncommitted"
    fetch_bytes_min: int = 1
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 50 * 1024 * 1024
    partition_bytes_max: int = 1024 * 1024
    prefetch_bytes: int = 4 * 1024 * 1024
    check_crc: bool = True
    rack: str = ""

    def __post_init__(self) -> None:
        if not self.group_id:
            raise InvalidSetting("group_id is empty; give the group a name")
        if self.group_protocol not in ("classic", "consumer"):
            raise InvalidSetting(
                f"group_protocol={self.group_protocol!r} is not classic or consumer"
            )
        if self.offset_reset not in ("earliest", "latest", "none"):
            raise InvalidSetting(
                f"offset_reset={self.offset_reset!r} is not earliest, latest or none"
            )
        if isinstance(self.assignors, str) or not self.assignors:
            raise InvalidSetting("assignors takes a tuple of names, as ('cooperative-sticky',)")
        object.__setattr__(self, "assignors", tuple(self.assignors))
        unknown = [name for name in self.assignors if name not in ASSIGNORS]
        if unknown:
            raise InvalidSetting(f"assignor {unknown[0]!r} is not one of {', '.join(ASSIGNORS)}")
        if self.server_assignor is not None and self.group_protocol != "consumer":
            raise InvalidSetting("server_assignor needs group_protocol='consumer'")
        at_least(1, self, "session_timeout_ms", "heartbeat_interval_ms", "max_poll_interval_ms")
        at_least(0, self, "auto_commit_interval_ms")
        if self.group_protocol == "classic" and self.heartbeat_interval_ms >= (
            self.session_timeout_ms
        ):
            raise InvalidSetting(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be below "
                f"session_timeout_ms={self.session_timeout_ms}; a third of it is usual"
            )
        self.reader_settings()

    def reader_settings(self) -> ReaderSettings:
        """The part that is about fetching."""
        return ReaderSettings(
            isolation=self.isolation,
            offset_reset="error" if self.offset_reset == "none" else self.offset_reset,
            fetch_bytes_min=self.fetch_bytes_min,
            fetch_wait_ms_max=self.fetch_wait_ms_max,
            fetch_bytes_max=self.fetch_bytes_max,
            partition_bytes_max=self.partition_bytes_max,
            prefetch_bytes=self.prefetch_bytes,
            check_crc=self.check_crc,
            rack=self.rack,
        )
