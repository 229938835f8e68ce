"""A broker asks the controller for each thing once at a time, and not again at once if refused."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.metadata import controller_channel
from headrace.metadata.auto_topic_creation import AutoTopicCreationManager
from headrace.metadata.controller_channel import ControllerRequests
from headrace.protocol.message import Message
from headrace.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


class ScriptedController:
    """Keeps requests until it is told what becomes of them."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.requests: list[CreateTopicsRequest] = []
        self._responses: list[asyncio.Future[Message]] = []

    async def send(self, request: Message) -> Message:
        assert isinstance(request, CreateTopicsRequest)
        self.requests.append(request)
        self.asked.append([topic.name for topic in request.topics])
        response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._responses.append(response)
        return await response

    def answer(self, index: int = -1, **errors: ErrorCode) -> None:
        self._responses[index].set_result(
            CreateTopicsResponse(
                topics=[
                    CreatableTopicResult(name=name, error_code=errors.get(name, ErrorCode.NONE))
                    for name in self.asked[index]
                ]
            )
        )

    def fail(self, error: Exception) -> None:
        self._responses[-1].set_exception(error)


Manager = tuple[AutoTopicCreationManager, ScriptedController, ControllerRequests]


@pytest.fixture
def manager() -> Manager:
    controller = ScriptedController()
    requests = ControllerRequests(controller)
    return AutoTopicCreationManager(requests, BrokerConfig()), controller, requests


async def turns(count: int = 3) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_topic_that_is_being_created_is_not_asked_for_again(manager: Manager) -> None:
    topics, controller, _ = manager
    topics.create(["a", "b", "a"])
    topics.create(["b", "c"])
    waiting = asyncio.create_task(topics.ensure("b"))
    await turns()
    assert controller.asked == [["a", "b"], ["c"]]
    assert not waiting.done()
    controller.answer(0)
    await waiting
    topics.create(["b", "c"])
    await turns()
    assert controller.asked == [["a", "b"], ["c"], ["b"]]


async def test_who_stops_waiting_does_not_stop_the_others(manager: Manager) -> None:
    topics, controller, _ = manager
    first, second = (asyncio.create_task(topics.ensure("t")) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    controller.answer()
    await second
    assert controller.asked == [["t"]]


async def test_a_topic_that_is_already_there_is_no_failure(manager: Manager) -> None:
    topics, controller, _ = manager
    ensured = asyncio.create_task(topics.ensure("t"))
    await turns()
    controller.answer(t=ErrorCode.TOPIC_ALREADY_EXISTS)
    await ensured


async def test_a_refused_topic_does_not_fail_its_neighbour_and_waits_before_the_next_try(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    topics, controller, _ = manager
    later = later_calls(monkeypatch)
    bad, good = (asyncio.create_task(topics.ensure(name)) for name in ("bad", "good"))
    await turns()
    controller.answer(0, bad=ErrorCode.POLICY_VIOLATION)
    controller.answer(1)
    await good
    for _ in range(2):  # the second one is not asked for
        with pytest.raises(ApiError) as refused:
            await bad
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        bad = asyncio.create_task(topics.ensure("bad"))
        await turns()
    assert controller.asked == [["bad"], ["good"]]
    with pytest.raises(ApiError):
        await bad
    later.pop()()
    again = asyncio.create_task(topics.ensure("bad"))
    await turns()
    assert controller.asked[2:] == [["bad"]]
    controller.answer()
    await again
    [line] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert line.getMessage() == (
        "the controller refused a request: request=CreateTopicsRequest for=bad"
        " error=POLICY_VIOLATION reason=POLICY_VIOLATION"
    )


def later_calls(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What was asked to be called after the backoff, which is left to the test."""
    loop = asyncio.get_running_loop()
    calls: list[Callable[[], None]] = []

    def call_later(delay: float, call: Callable[..., None], *arguments: object) -> None:
        assert delay == controller_channel.RETRY_BACKOFF_SECONDS
        calls.append(lambda: call(*arguments))

    monkeypatch.setattr(loop, "call_later", call_later)
    return calls


async def test_without_a_response_everything_asked_for_has_failed(manager: Manager) -> None:
    topics, controller, requests = manager
    topics.create(["a", "b"])
    waiting = [asyncio.create_task(topics.ensure(name)) for name in ("a", "b")]
    await turns()
    controller.fail(StorageError("no space"))
    for each in waiting:
        with pytest.raises(StorageError, match="no space"):
            await each
    await requests.close()


async def test_a_mistake_on_the_way_to_the_controller_is_told_and_not_taken_for_a_stop(
    manager: Manager,
) -> None:
    """A handler that is cancelled leaves its client without a response."""
    topics, controller, requests = manager
    waiting = asyncio.create_task(topics.ensure("t"))
    await turns()
    controller.fail(RuntimeError("a mistake of ours"))
    with pytest.raises(ApiError) as refused:
        await waiting
    assert refused.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
    await requests.close()


async def test_the_topic_of_the_group_coordinator_is_what_it_needs(manager: Manager) -> None:
    """Whoever mentions it first."""
    topics, controller, requests = manager
    topics.create(["orders", "__consumer_offsets"])
    await turns()
    orders, offsets = controller.requests[0].topics
    assert (orders.num_partitions, orders.replication_factor, orders.configs) == (-1, -1, [])
    assert (offsets.num_partitions, offsets.replication_factor) == (50, 1)
    assert {each.name: each.value for each in offsets.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    controller.answer()
    await requests.close()
