"""What the handlers of group requests share."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Generic, Protocol, TypeVar

from headrace.broker.request import RequestContext
from headrace.coordinator.result import ReplyCallback
from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.result import ClientInfo
from headrace.metadata.image import Topic
from headrace.protocol.message import Message


class _NamesPartition(Protocol):
    partition_index: int


class _HasPartitions(Protocol):
    partitions: list[Any]


R = TypeVar("R", bound=Message)
P = TypeVar("P", bound=_NamesPartition)
T = TypeVar("T", bound=_HasPartitions)


def reply_callback(
    ctx: RequestContext, request: R, refuse: Callable[[R, ErrorCode, str | None], Message]
) -> ReplyCallback:
    """A reply for the coordinator: its answer as it is, or the refusal of this API."""

    def reply(outcome: Message | ApiError) -> None:
        if isinstance(outcome, ApiError):
            ctx.reply(refuse(request, outcome.code, outcome.message))
        else:
            ctx.reply(outcome)

    return reply


def client_info(ctx: RequestContext, instance_id: str | None) -> ClientInfo:
    """Who asks, with a member id in case it needs one: Kafka's form, readable in lists."""
    client_id = ctx.client_id or ""
    new_id = ctx.services.groups.new_member_id(client_id if instance_id is None else instance_id)
    return ClientInfo(client_id, ctx.origin.client_host, ctx.api_version, new_id)


def split_by_existence(topic: Topic | None, partitions: Iterable[P]) -> tuple[list[P], list[P]]:
    """Those that the topic has, and those that it has not."""
    count = 0 if topic is None else len(topic.partitions)
    present: list[P] = []
    missing: list[P] = []
    for each in partitions:
        (present if 0 <= each.partition_index < count else missing).append(each)
    return present, missing


class TopicResponses(Generic[T]):
    """The topics of a response, each once however often it was asked for.

    What is refused is put in before the coordinator is asked, so its partitions come first, as
    in Kafka's answers.
    """

    __slots__ = ("_by_key",)

    def __init__(self) -> None:
        self._by_key: dict[Hashable, T] = {}

    def put(self, key: Hashable, topic: T) -> None:
        """Add the partitions of a topic."""
        first = self._by_key.setdefault(key, topic)
        if first is not topic:
            first.partitions += topic.partitions

    @property
    def topics(self) -> list[T]:
        return list(self._by_key.values())
