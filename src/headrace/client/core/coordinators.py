"""Finding the broker that looks after a group, and asking it.

Who it was last time is remembered until it says it is not, or cannot be reached.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from headrace.client.core.errors import error_for
from headrace.client.core.operations import (
    ClientOperation,
    R,
    SendAll,
    Session,
    retrying,
    send_to_any,
)
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.core.ids import NodeId
from headrace.network.address import BrokerAddress
from headrace.network.errors import BrokerUnreachable, RequestTimedOut
from headrace.network.send_request import SHARED_CHANNEL, SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

V = TypeVar("V")
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


def find_coordinators(
    session: Session, groups: Collection[str]
) -> ClientOperation[dict[str, NodeId]]:
    """The coordinator of each group; those not known are looked up in one request."""
    missing = [group for group in groups if not _is_known(session, group)]
    if missing:
        request = FindCoordinatorRequest(key=missing[0], coordinator_keys=missing)
        # Before v4 a request has one key; brokers of that age have no KIP-848 group either.
        response = yield from send_to_any(session, request, FindCoordinatorResponse, version_min=4)
        for found in response.coordinators:
            _take_in(session, found)
    return {group: session.coordinators[group] for group in groups}


def _is_known(session: Session, group: str) -> bool:
    node = session.coordinators.get(group)
    return node is not None and session.cluster.address(node) is not None


def _take_in(session: Session, found: Coordinator) -> None:
    if found.error_code:
        what = f"coordinator of group {found.key!r}"
        raise error_for(found.error_code, found.error_message, what)
    node = NodeId(found.node_id)
    session.cluster.add_broker(BrokerAddress(node, found.host, found.port))
    session.coordinators[found.key] = node


def send_to_coordinator(
    session: Session,
    group: str,
    request: Message,
    response_class: type[R],
    *,
    version_min: int = 0,
    version_max: int = 1000,
    timeout_ms: float | None = None,
    channel: int = SHARED_CHANNEL,
) -> ClientOperation[R]:
    """One request to the group's coordinator."""
    node = (yield from find_coordinators(session, [group]))[group]
    limit = session.settings.request_timeout_ms if timeout_ms is None else timeout_ms
    try:
        response: R = yield SendRequest(
            node, request, response_class, limit, version_min, version_max, channel=channel
        )
    except (BrokerUnreachable, RequestTimedOut) as error:
        note_failure(session, group, error)
        raise
    note_code(session, group, getattr(response, "error_code", 0))
    return response


def note_code(session: Session, group: str, code: int) -> None:
    """Look for the coordinator anew if this answer says that it has moved."""
    if code in MOVED:
        session.coordinators.pop(group, None)


def note_failure(session: Session, group: str, error: HeadraceError) -> None:
    """Look anew after an error, too: a broker that does not answer may have lost the group."""
    if isinstance(error, (BrokerUnreachable, RequestTimedOut)) or error.code in MOVED:
        session.coordinators.pop(group, None)


def per_group(
    session: Session,
    groups: Collection[str],
    make_request: Callable[[NodeId, Sequence[str]], SendRequest],
    read: Callable[[Message], Mapping[str, V | HeadraceError]],
) -> ClientOperation[dict[str, V]]:
    """Ask every coordinator about its groups; retry only those that failed and may yet succeed."""
    done: dict[str, V] = {}

    def attempt() -> ClientOperation[dict[str, V]]:
        missing = [group for group in dict.fromkeys(groups) if group not in done]
        nodes = yield from find_coordinators(session, missing)
        by_node: dict[NodeId, list[str]] = {}
        for group, node in nodes.items():
            by_node.setdefault(node, []).append(group)
        requests = [make_request(node, each) for node, each in by_node.items()]
        responses: list[Message | HeadraceError] = yield SendAll(requests)
        failures: list[HeadraceError] = []
        for response, asked in zip(responses, by_node.values(), strict=True):
            outcomes: Mapping[str, V | HeadraceError] = (
                dict.fromkeys(asked, response)
                if isinstance(response, HeadraceError)
                else read(response)
            )
            for group, outcome in outcomes.items():
                if isinstance(outcome, HeadraceError):
                    note_failure(session, group, outcome)
                    failures.append(outcome)
                else:
                    done[group] = outcome
        if failures:
            raise min(failures, key=lambda each: each.retriable)  # what will not heal goes first
        return done

    return (yield from retrying(session, attempt))
