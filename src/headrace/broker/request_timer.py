"""How long a request takes where a group lets it wait for its other members.

That wait is asked for and not held against the broker; once the group has decided, what is left
is the coordinator's own time.
"""

from headrace.broker.request import RequestContext
from headrace.coordinator.result import ReplyCallback, WaitingReply
from headrace.core.errors import ApiError
from headrace.protocol.message import Message


class TimedReply(WaitingReply):
    """A reply to such a request, which pauses its timer around the wait, if there is one."""

    __slots__ = ("_ctx", "_is_decided", "_is_paused", "_reply")

    def __init__(self, ctx: RequestContext, reply: ReplyCallback) -> None:
        self._ctx = ctx
        self._reply = reply
        self._is_paused = False
        self._is_decided = False

    def pause_timer_unless_decided(self) -> None:
        """The request has been handed to its group."""
        if not self._is_decided:
            self._is_paused = True
            self._ctx.pause_timer()

    def decided(self) -> None:
        """The group knows the response."""
        self._is_decided = True
        if self._is_paused:
            self._is_paused = False
            self._ctx.resume_timer()

    def __call__(self, outcome: Message | ApiError) -> None:
        self.decided()
        self._reply(outcome)
