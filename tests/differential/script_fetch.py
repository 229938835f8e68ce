"""Fetch: every version, limits, epochs, and sessions step by step."""

from __future__ import annotations

from uuid import UUID

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages.fetch import FetchResponse
from tests.differential.peer import Peer
from tests.differential.scripts import NULL_ID, fetch_request, fill, script, versions
from tests.support.batches import Batch, values

_STRANGER = UUID(int=98765)


def _filled(peer: Peer, topic: str, partitions: int = 2) -> UUID:
    """A topic with five batches of three records in each partition."""
    topic_id = peer.create(topic, partitions)
    for partition in range(partitions):
        batches = (Batch(values(3, f"{partition}-{number}-")).encode() for number in range(5))
        fill(peer, topic, topic_id, partition, *batches)
    return topic_id


@script
def fetch_in_every_version(peer: Peer) -> None:
    topic_id = _filled(peer, "fetch-good")
    for version in versions(ApiKey.FETCH):
        for label, partitions, isolation in (
            ("from the start", {0: 0}, 0),
            ("from inside a batch", {0: 4}, 0),
            ("two partitions, committed", {0: 3, 1: 9}, 1),
            ("at the end", {0: 15}, 0),
            ("at the end, committed", {1: 15}, 1),
        ):
            request = fetch_request(
                version, "fetch-good", topic_id, partitions, isolation_level=isolation
            )
            peer.ask(request, version, label)


@script
def fetch_within_limits(peer: Peer) -> None:
    topic_id = _filled(peer, "fetch-limits")
    size = len(Batch(values(3, "0-0-")).encode())
    for version in versions(ApiKey.FETCH):
        for label, total, each in (
            ("one byte for each partition", 1 << 20, 1),
            ("one byte for all", 1, 1 << 20),
            ("one batch and a half for all", size + size // 2, 1 << 20),
            ("two batches and a half for each", 1 << 20, 2 * size + size // 2),
            ("nothing for each", 1 << 20, 0),
        ):
            request = fetch_request(
                version,
                "fetch-limits",
                topic_id,
                {0: 0, 1: 0},
                max_bytes=total,
                partition_max_bytes=each,
            )
            peer.ask(request, version, label)


@script
def fetch_waits_for_bytes(peer: Peer) -> None:
    topic_id = _filled(peer, "fetch-wait", 1)
    for version in versions(ApiKey.FETCH):
        request = fetch_request(
            version, "fetch-wait", topic_id, {0: 15}, max_wait_ms=20, min_bytes=1
        )
        peer.ask(request, version, "nothing comes")
        enough = fetch_request(
            version, "fetch-wait", topic_id, {0: 12}, max_wait_ms=5_000, min_bytes=1
        )
        peer.ask(enough, version, "there already")


@script
def fetch_from_nowhere(peer: Peer) -> None:
    topic_id = _filled(peer, "fetch-where", 1)
    for version in versions(ApiKey.FETCH):
        for label, offset in (("beyond the end", 16), ("far beyond", 10**12), ("negative", -5)):
            request = fetch_request(version, "fetch-where", topic_id, {0: offset})
            peer.ask(request, version, label)
        peer.ask(fetch_request(version, "fetch-where", topic_id, {3: 0}), version, "no partition")
        known_and_not = fetch_request(version, "fetch-where", topic_id, {0: 0, 5: 0})
        peer.ask(known_and_not, version, "one partition known, one not")
        doubled = fetch_request(version, "fetch-where", topic_id, {0: 0})
        doubled.topics = doubled.topics * 2
        peer.ask(doubled, version, "a topic twice")
        if version < 13:
            missing = fetch_request(version, "no-such-topic", NULL_ID, {0: 0})
            peer.ask(missing, version, "unknown topic")
        else:
            unknown = fetch_request(version, "", _STRANGER, {0: 0})
            peer.ask(unknown, version, "unknown topic id")
            peer.ask(fetch_request(version, "", NULL_ID, {0: 0}), version, "null topic id")


@script
def fetch_with_epochs(peer: Peer) -> None:
    topic_id = _filled(peer, "fetch-epochs", 1)
    for version in versions(ApiKey.FETCH, since=9):
        for label, epoch in (("current epoch", 0), ("an epoch to come", 7)):
            request = fetch_request(version, "fetch-epochs", topic_id, {0: 3}, leader_epoch=epoch)
            peer.ask(request, version, label)
    for version in versions(ApiKey.FETCH, since=12):
        for label, offset, epoch in (
            ("same history", 3, 0),
            ("an epoch that never was", 3, 5),
            ("behind the end of its epoch", 15, 0),
        ):
            request = fetch_request(
                version, "fetch-epochs", topic_id, {0: offset}, last_fetched_epoch=epoch
            )
            peer.ask(request, version, label)


@script
def fetch_in_a_session(peer: Peer) -> None:
    topic_id = _filled(peer, "fetch-session", 3)
    for version in versions(ApiKey.FETCH, since=7):
        _one_session(peer, version, topic_id)


def _one_session(peer: Peer, version: int, topic_id: UUID) -> None:
    topic = "fetch-session"

    def ask(
        partitions: dict[int, int], session: tuple[int, int], label: str, **more: object
    ) -> int:
        request = fetch_request(version, topic, topic_id, partitions, session=session, **more)  # type: ignore[arg-type]  # passed on by name
        answer = peer.ask(request, version, label)
        assert isinstance(answer, FetchResponse)
        return answer.session_id

    session = ask({0: 12, 1: 12, 2: 15}, (0, 0), "a session opens")
    ask({}, (session, 1), "nothing new asked, positions kept")
    ask({0: 15, 1: 15}, (session, 2), "both read on")
    ask({}, (session, 3), "nothing has changed")
    ask({1: 9}, (session, 4), "one goes back")
    ask({}, (session, 5), "one is forgotten", forget=[1])
    ask({}, (session, 9), "an epoch out of turn")
    ask({}, (session, 6), "in turn again")
    ask({0: 0}, (session + 77_777, 1), "a session nobody opened")
    ask({9: 0}, (session, 7), "an unknown partition comes in")
    ask({}, (session, 8), "the unknown partition stays an error")
    ask({0: 12}, (session, -1), "the session closes")
    ask({}, (session, 9), "a closed session")


@script
def fetch_mixes_names_and_ids_in_a_session(peer: Peer) -> None:
    topic_id = _filled(peer, "fetch-mixed", 1)
    by_name = fetch_request(12, "fetch-mixed", topic_id, {0: 0}, session=(0, 0))
    opened = peer.ask(by_name, 12, "opened by name")
    assert isinstance(opened, FetchResponse)
    by_id = fetch_request(13, "fetch-mixed", topic_id, {0: 0}, session=(opened.session_id, 1))
    peer.ask(by_id, 13, "goes on by id")
    opened = peer.ask(
        fetch_request(13, "fetch-mixed", topic_id, {0: 0}, session=(0, 0)), 13, "opened by id"
    )
    assert isinstance(opened, FetchResponse)
    by_name = fetch_request(12, "fetch-mixed", topic_id, {0: 0}, session=(opened.session_id, 1))
    peer.ask(by_name, 12, "goes on by name")
