"""Runs a membership: a task that heartbeats, joins and leaves while the program does its work."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from headrace.client.aio.cluster_requests import AsyncClusterRequests
from headrace.client.core.consumer_state import find_topics
from headrace.client.core.coordinators import send_to_coordinator
from headrace.client.core.membership import CoordinatorRequest, FindTopics, Membership, WaitUntil
from headrace.core.errors import HeadraceError
from headrace.network.send_request import SHARED_CHANNEL
from headrace.protocol.message import Message

# Leaving the group is worth this much patience: the group will notice our absence anyway.
_LEAVE_MS = 5_000
# A broker names a new member at once; an old one only when the whole rebalance is over.
_MEMBER_ID_WAIT_MS = 2_000


class MembershipTask:
    """Drives one membership until it is stopped; `changed` is called after every step.

    It has a connection of its own to the coordinator, since a join may be parked there for as
    long as a rebalance takes and answers come in order.
    """

    def __init__(
        self,
        requests: AsyncClusterRequests,
        group: str,
        membership: Membership,
        on_change: Callable[[], None],
    ) -> None:
        self._requests = requests
        self._group = group
        self._membership = membership
        self._on_change = on_change
        self._channel = requests.new_channel()
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        # A fault of ours in the task must reach the program, not die unseen.
        self.fault: BaseException | None = None

    def start(self) -> None:
        """Begin, unless it runs already."""
        if self._task is None:
            self._is_stopping = False
            self._task = asyncio.get_running_loop().create_task(self._run())
        self.wake_up()

    def wake_up(self) -> None:
        """Something happened that the membership may want to act on."""
        self._woken.set()

    async def stop(self) -> None:
        """End the task; the membership stays as it is.

        A join whose answer names us is waited for a little: without our name we could not leave,
        and the group would wait for us for a whole session.
        """
        task, self._task = self._task, None
        if task is not None:
            if self._membership.is_awaiting_member_id:
                self._is_stopping = True
                await asyncio.wait((task,), timeout=_MEMBER_ID_WAIT_MS / 1000)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self._requests.close_channel(self._channel)

    async def leave(self, reason: str) -> None:
        """Tell the group that we go; not being heard is no failure."""
        request = self._membership.leave_request(reason)
        if request is None:
            return
        with suppress(HeadraceError, TimeoutError):
            async with asyncio.timeout(_LEAVE_MS / 1000):
                await self._send(request, SHARED_CHANNEL)

    async def _run(self) -> None:
        try:
            while not self._is_stopping:
                await self._run_once()
                self._on_change()
        except Exception as fault:
            self.fault = fault
            self._on_change()

    async def _run_once(self) -> None:
        membership, now_ms = self._membership, self._requests.now_ms
        self._woken.clear()
        action = membership.next_action(now_ms())
        if isinstance(action, CoordinatorRequest):
            outcome: Message | HeadraceError
            try:
                outcome = await self._send(action, self._channel)
            except HeadraceError as error:
                outcome = error
            membership.on_response(outcome, now_ms())
        elif isinstance(action, FindTopics):
            try:
                topics = await self._requests.run(find_topics(self._requests.session, action))
            except HeadraceError:
                membership.topics_found(None, now_ms())
            else:
                membership.topics_found(topics, now_ms())
        else:
            await self._wait(action)

    async def _send(self, request: CoordinatorRequest, channel: int) -> Message:
        return await self._requests.run(
            send_to_coordinator(
                self._requests.session,
                self._group,
                request.request,
                request.response_class,
                version_min=request.version_min,
                timeout_ms=request.timeout_ms,
                channel=channel,
            )
        )

    async def _wait(self, wait: WaitUntil) -> None:
        self._on_change()
        left_ms = wait.until_ms - self._requests.now_ms()
        with suppress(TimeoutError):
            async with asyncio.timeout(None if left_ms == float("inf") else left_ms / 1000):
                await self._woken.wait()
