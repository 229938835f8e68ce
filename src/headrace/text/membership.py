"""JOIN, POLL and LEAVE: a connection as a member of a group.

What a POLL returned is committed by the next POLL, or by LEAVE. A client that hangs up in
between leaves the group, and what it was given last goes to the others.
"""

import asyncio
from typing import Final

from headrace.client.core.errors import CommitFailed
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.gateway import Gateway, GatewayMember
from headrace.protocol.records.decode import Record
from headrace.text import options, responses
from headrace.text.output import Output
from headrace.text.tokenizer import BadLine, Tokenizer

JOIN_USAGE: Final = "JOIN <group> <topic> [<topic> ...]"
POLL_USAGE: Final = "POLL [LIMIT n] [WAIT milliseconds] [TIMES]"
# How long JOIN waits for the first partitions; a group in motion may take longer.
_ASSIGNMENT_WAIT_MS: Final = 3_000
_ASSIGNMENT_STEP_MS: Final = 200
# How soon a POLL that waits for messages tells of new partitions.
_ASSIGNMENT_POLL_MS: Final = 250
_LIMIT: Final = 100
_LIMIT_MAX: Final = 10_000
_WAIT_MS: Final = 1_000
_WAIT_MS_MAX: Final = 60_000
_TOPICS_MAX: Final = 100


class TextMembership:
    """The group of one connection, if it has one."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.group: str | None = None
        self._member: GatewayMember | None = None
        # Handed out by the last POLL: what the next one commits.
        self._unacknowledged: dict[TopicPartition, int] = {}
        self._reported: list[TopicPartition] = []

    async def join(self, tokens: Tokenizer) -> bytes:
        group = options.name(tokens, JOIN_USAGE)
        topics = [options.name(tokens, JOIN_USAGE)]
        while (word := tokens.next()) is not None:
            topics.append(word.decode(errors="replace"))
        if len(topics) > _TOPICS_MAX:
            raise BadLine(f"a member reads at most {_TOPICS_MAX} topics")
        if self._member is not None:
            raise BadLine(f"this connection is in group {self.group!r}; LEAVE first")
        for topic in topics:
            await self._gateway.partitions(topic, create=True)
        self._member = await self._gateway.join(group, topics, on_revoked=self._drop_revoked)
        self.group = group
        try:
            await self._first_partitions(self._member)
        except BaseException:
            await self.end()
            raise
        self._reported = self._member.assignment
        return responses.ok(partitions=responses.partitions(self._reported))

    async def _first_partitions(self, member: GatewayMember) -> None:
        """Wait for them; a group with more members than partitions has none for us."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _ASSIGNMENT_WAIT_MS / 1000
        while not member.assignment and loop.time() < deadline:
            await member.wait_for_change(_ASSIGNMENT_STEP_MS)
            # Raises what the group refuses.
            await member.poll(0, 0)

    async def poll(self, tokens: Tokenizer, out: Output) -> bytes:
        limit, wait_ms, times = _LIMIT, _WAIT_MS, False
        while (option := options.option(tokens)) is not None:
            match option:
                case "LIMIT":
                    limit = options.number(tokens, "LIMIT <messages>", highest=_LIMIT_MAX)
                case "WAIT":
                    wait_ms = options.number(tokens, "WAIT <ms>", highest=_WAIT_MS_MAX)
                case "TIMES":
                    times = True
                case _:
                    raise BadLine(f"{option[:50]!r} is not understood; write {POLL_USAGE}")
        member = self._joined()
        await self._commit_unacknowledged(member)
        found = await self._poll(member, wait_ms, limit)
        # Before anything is awaited: from here on a partition may go, and takes its entry along.
        for where, records in found.items():
            self._unacknowledged[where] = records[-1].offset + 1
        if member.assignment != self._reported:
            self._reported = member.assignment
            await out.send(b"ASSIGNED %b\n" % responses.partitions(self._reported).encode())
        count = 0
        for where, records in found.items():
            count += len(records)
            await out.send(responses.messages(where, records, times=times))
        return responses.ok(count=count)

    async def _poll(
        self, member: GatewayMember, wait_ms: int, limit: int
    ) -> dict[TopicPartition, list[Record]]:
        """Wait for messages, or for the group to give us other partitions."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_ms / 1000
        while True:
            left_ms = max(deadline - loop.time(), 0) * 1000
            found = await member.poll(min(left_ms, _ASSIGNMENT_POLL_MS), limit)
            if found or left_ms <= _ASSIGNMENT_POLL_MS or member.assignment != self._reported:
                return found

    async def commit(self, where: TopicPartition, offset: int) -> None:
        """A COMMIT for the group that this connection is in."""
        await self._joined().commit({where: offset})
        self._unacknowledged.pop(where, None)

    async def leave(self) -> bytes:
        member = self._joined()
        await self._commit_unacknowledged(member)
        await self.end()
        return responses.ok()

    async def end(self) -> None:
        """Leave without a word; also when the client has gone."""
        member, self._member, self.group = self._member, None, None
        self._unacknowledged.clear()
        if member is not None:
            await member.leave()

    def _drop_revoked(self, partitions: list[TopicPartition]) -> None:
        """What has gone to another member is no longer ours to move, nor when it comes back."""
        for where in partitions:
            self._unacknowledged.pop(where, None)

    async def _commit_unacknowledged(self, member: GatewayMember) -> None:
        offsets = dict(self._unacknowledged)
        self._unacknowledged.clear()
        if offsets:
            try:
                await member.commit(offsets)
            except CommitFailed:
                # The group has moved on: these messages are given out once more.
                return

    def _joined(self) -> GatewayMember:
        if self._member is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"this connection is in no group; {JOIN_USAGE} first"
            )
        return self._member
