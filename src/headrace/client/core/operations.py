"""Calls written once for both faces: generators that yield what they need from the outside.

An operation yields `SendRequest` (one request to one node), `SendAll` (several at once) or
`Sleep`, and is resumed with the response. The async face awaits what is yielded, the blocking
face waits for it; a test answers by hand.

    def cluster_id(session: Session) -> ClientOperation[str]:
        request = DescribeClusterRequest(...)
        response = yield from send_to_any(session, request, DescribeClusterResponse)
        return response.cluster_id
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from headrace.client.core.backoff import Backoff
from headrace.client.core.cluster import Cluster
from headrace.client.core.errors import CallTimedOut
from headrace.client.core.settings import ClientSettings
from headrace.core.errors import HeadraceError
from headrace.core.ids import NodeId
from headrace.core.runtime import Randomness
from headrace.network.errors import (
    BrokerUnreachable,
    ConnectFailed,
    ConnectionLost,
    RequestTimedOut,
)
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message

R = TypeVar("R", bound=Message)
T = TypeVar("T")


@dataclass(slots=True)
class SendAll:
    """Send several requests at once; failures come back as values, one per request."""

    requests: Sequence[SendRequest]


@dataclass(slots=True)
class Sleep:
    """Wait before going on."""

    ms: float


Effect = SendRequest | SendAll | Sleep
ClientOperation = Generator[Effect, Any, T]


@dataclass(slots=True)
class Session:
    """What every operation of one client shares."""

    settings: ClientSettings
    cluster: Cluster
    randomness: Randomness
    now_ms: Callable[[], float]
    connected: Callable[[], Sequence[NodeId]]
    # Who coordinates a group, as last heard.
    coordinators: dict[str, NodeId] = field(default_factory=dict)
    backoff: Backoff = field(init=False)

    def __post_init__(self) -> None:
        self.backoff = Backoff(
            self.settings.retry_backoff_ms, self.settings.retry_backoff_ms_max, self.randomness
        )


def send_to(
    session: Session,
    node: NodeId,
    request: Message,
    response_class: type[R],
    *,
    version_min: int = 0,
    version_max: int = 1000,
    timeout_ms: float | None = None,
) -> ClientOperation[R]:
    """One request to one node, typed."""
    limit = session.settings.request_timeout_ms if timeout_ms is None else timeout_ms
    response: R = yield SendRequest(node, request, response_class, limit, version_min, version_max)
    return response


def send_to_any(
    session: Session, request: Message, response_class: type[R], *, version_min: int = 0
) -> ClientOperation[R]:
    """One request to whichever node answers, connected ones first."""
    failures: list[HeadraceError] = []
    for node in session.cluster.candidates(session.connected()):
        try:
            return (
                yield from send_to(session, node, request, response_class, version_min=version_min)
            )
        except (BrokerUnreachable, RequestTimedOut) as error:
            failures.append(error)
    reasons = "; ".join(dict.fromkeys(map(str, failures)))
    was_sent = any(not isinstance(each, ConnectFailed) for each in failures)
    kind = ConnectionLost if was_sent else ConnectFailed
    raise kind(f"no broker reached: {reasons}")


def retrying(
    session: Session,
    attempt: Callable[[], ClientOperation[T]],
    *,
    recover: Callable[[HeadraceError], ClientOperation[None]] | None = None,
    timeout_ms: float | None = None,
) -> ClientOperation[T]:
    """Run an attempt until it succeeds, fails for good, or the call's time is up.

    `recover` runs between attempts, e.g. to refresh the metadata that sent us astray.
    """
    limit = session.settings.call_timeout_ms if timeout_ms is None else timeout_ms
    deadline = session.now_ms() + limit
    failures = 0
    while True:
        try:
            return (yield from attempt())
        except HeadraceError as error:
            failures += 1
            delay = session.backoff.delay_ms(failures)
            if not error.retriable:
                raise
            if session.now_ms() + delay >= deadline:
                raise CallTimedOut(
                    f"gave up after {failures} attempts in {limit:.0f} ms; last failure: {error}"
                ) from error
            yield Sleep(delay)
            if recover is not None:
                yield from _quietly(recover(error))


def _quietly(operation: ClientOperation[None]) -> ClientOperation[None]:
    """A failed recovery shows in the next attempt; it must not hide the first error."""
    try:
        yield from operation
    except HeadraceError as error:
        if not error.retriable:
            raise
