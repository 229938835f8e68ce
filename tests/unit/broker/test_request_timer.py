"""The time that a request waits for other members of its group is not the broker's."""

from typing import Any, cast

from headrace.broker.request_timer import TimedReply
from headrace.core.errors import ApiError, ErrorCode
from headrace.protocol.message import Message
from headrace.protocol.messages.heartbeat import HeartbeatResponse


class Context:
    """A request whose timer writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.outcomes: list[Message | ApiError] = []
        self.reply = TimedReply(cast(Any, self), self.outcomes.append)

    def pause_timer(self) -> None:
        self.told.append("pause")

    def resume_timer(self) -> None:
        self.told.append("resume")


def test_the_wait_is_over_when_the_group_decides_not_when_the_response_leaves() -> None:
    request = Context()
    request.reply.pause_timer_unless_decided()
    assert request.told == ["pause"]
    request.reply.decided()
    assert request.told == ["pause", "resume"]
    response = HeartbeatResponse()
    request.reply(response)
    assert (request.told, request.outcomes) == (["pause", "resume"], [response])


def test_where_the_group_decides_at_once_there_is_no_wait() -> None:
    request = Context()
    request.reply.decided()
    request.reply.pause_timer_unless_decided()
    assert request.told == []


def test_a_refusal_ends_the_wait_too() -> None:
    request = Context()
    request.reply.pause_timer_unless_decided()
    error = ApiError(ErrorCode.NOT_COORDINATOR)
    request.reply(error)
    assert (request.told, request.outcomes) == (["pause", "resume"], [error])
