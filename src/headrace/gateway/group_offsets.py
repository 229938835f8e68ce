"""Offsets of groups from outside: commit, look, and set back."""

from collections.abc import Collection, Mapping

from headrace.client.aio.client import AsyncClient
from headrace.client.core.group_models import CommittedOffset
from headrace.client.core.offset_operations import commit_offsets, fetch_offsets
from headrace.client.core.operations import ClientOperation, retrying
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.gateway.reader import GatewayReader

OffsetsToCommit = Mapping[TopicPartition, int | CommittedOffset]

# What a group with members says to somebody who is none.
_HAS_MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class GroupOffsets:
    """The gateway's calls about a group's offsets."""

    def __init__(self, client: AsyncClient, reader: GatewayReader) -> None:
        self._client = client
        self._reader = reader

    async def commit(self, group: str, offsets: OffsetsToCommit) -> None:
        """Commit for a group that has no members."""
        wanted = {
            where: CommittedOffset(place) if isinstance(place, int) else place
            for where, place in offsets.items()
        }
        for where in wanted:
            await self._reader.check(where)
        session = self._client.requests.session

        def attempt() -> ClientOperation[None]:
            failures = yield from commit_offsets(session, group, wanted)
            for error in failures.values():
                raise error

        try:
            await self._client.requests.run(retrying(session, attempt))
        except HeadraceError as error:
            if error.code in _HAS_MEMBERS:
                raise GroupNotEmpty(group) from error
            raise

    async def offsets(
        self, group: str, partitions: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What is committed; partitions without an offset are left out."""
        return await self._client.requests.run(
            fetch_offsets(self._client.requests.session, group, partitions)
        )


class GroupNotEmpty(ApiError):
    """Members are reading: they would overwrite what is set from outside."""

    def __init__(self, group: str) -> None:
        super().__init__(
            ErrorCode.NON_EMPTY_GROUP,
            f"group {group!r} has members that are reading",
            hint="stop them first; a group without members keeps its offsets",
        )
