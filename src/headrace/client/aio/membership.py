"""Runs a membership: a task that heartbeats, joins and leaves while the program does its work."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.client.core.consuming import see_topics
from headrace.client.core.coordinators import ask_coordinator
from headrace.client.core.flows import SHARED_CHANNEL
from headrace.client.core.membership import LookUp, Membership, Send, Wait
from headrace.core.errors import HeadraceError
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.client.aio.client import AsyncClient

# A farewell is worth this much patience: the group will notice our absence anyway.
_LEAVE_MS = 5_000
# A broker names a new member at once; an old one only when the whole rebalance is over.
_NAMED_MS = 2_000


class MembershipTask:
    """Drives one membership until it is stopped; `changed` is called after every step.

    It has a connection of its own to the coordinator, since a join may be parked there for as
    long as a rebalance takes and answers come in order.
    """

    def __init__(
        self,
        client: "AsyncClient",
        group: str,
        membership: Membership,
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._group = group
        self._membership = membership
        self._changed = changed
        self._channel = client.new_channel()
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        # A fault of ours in the task must reach the program, not die unseen.
        self.fault: BaseException | None = None

    def start(self) -> None:
        """Begin, unless it runs already."""
        if self._task is None:
            self._is_stopping = False
            self._task = asyncio.get_running_loop().create_task(self._run())
        self.nudge()

    def nudge(self) -> None:
        """Something happened that the membership may want to act on."""
        self._nudged.set()

    async def stop(self) -> None:
        """End the task; the membership stays as it is.

        A join whose answer names us is waited for a little: without our name we could not leave,
        and the group would wait for us for a whole session.
        """
        task, self._task = self._task, None
        if task is not None:
            if self._membership.is_being_named:
                self._is_stopping = True
                await asyncio.wait((task,), timeout=_NAMED_MS / 1000)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._client.close_channel(self._channel)

    async def leave(self, reason: str) -> None:
        """Tell the group that we go; not being heard is no failure."""
        send = self._membership.leave_request(reason)
        if send is None:
            return
        with suppress(HeadraceError, TimeoutError):
            async with asyncio.timeout(_LEAVE_MS / 1000):
                await self._ask(send, SHARED_CHANNEL)

    async def _run(self) -> None:
        try:
            while not self._is_stopping:
                await self._step()
                self._changed()
        except Exception as fault:
            self.fault = fault
            self._changed()

    async def _step(self) -> None:
        membership, now_ms = self._membership, self._client.now_ms
        self._nudged.clear()
        step = membership.step(now_ms())
        if isinstance(step, Send):
            outcome: Message | HeadraceError
            try:
                outcome = await self._ask(step, self._channel)
            except HeadraceError as error:
                outcome = error
            membership.answered(outcome, now_ms())
        elif isinstance(step, LookUp):
            try:
                topics = await self._client.run(see_topics(self._client.session, step))
            except HeadraceError:
                membership.looked_up(None, now_ms())
            else:
                membership.looked_up(topics, now_ms())
        else:
            await self._wait(step)

    async def _ask(self, send: Send, channel: int) -> Message:
        return await self._client.run(
            ask_coordinator(
                self._client.session,
                self._group,
                send.request,
                send.response_class,
                version_min=send.version_min,
                timeout_ms=send.timeout_ms,
                channel=channel,
            )
        )

    async def _wait(self, wait: Wait) -> None:
        self._changed()
        left_ms = wait.until_ms - self._client.now_ms()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if left_ms == float("inf") else left_ms / 1000):
                await self._nudged.wait()
