"""A decision about groups: the `Result` of an operation, with what groups are decided by."""

from typing import NamedTuple

from headrace.coordinator.result import Result
from headrace.groups.records import GroupRecord, encode
from headrace.groups.settings import GroupSettings
from headrace.metadata.image import Image


class ClientInfo(NamedTuple):
    """Who sent a request, as members are remembered."""

    client_id: str
    client_host: str
    api_version: int
    new_member_id: str
    """An id that nobody has, for whoever comes without one."""


class GroupResult(Result[GroupRecord]):
    """Collects what an operation on a group comes to."""

    __slots__ = ("image", "settings")

    def __init__(
        self, now_ms: int, time_ms: int, settings: GroupSettings, image: Image | None = None
    ) -> None:
        """`image` is the cluster as it is now: topics that groups read, configs of groups."""
        super().__init__(encode, now_ms, time_ms)
        self.settings = settings
        self.image = Image("") if image is None else image
