"""The client side of the group rows: members that join, and commits over a bare socket."""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict

from confluent_kafka import Consumer

from bench.driver import Outcome, measured
from bench.wire import RawConnection, request, text

_TIMEOUT_SECONDS = 120
_OFFSET_COMMIT, _OFFSET_FETCH, _FIND_COORDINATOR = 8, 9, 10
_LOOK_SECONDS = 0.02


def join(bootstrap: str, pid: int, topic: str, group: str, members: int, protocol: str) -> Outcome:
    """As many librdkafka members as partitions: until each owns one, and no two the same."""
    consumers = [
        Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        for _ in range(members)
    ]
    outcome = Outcome(count=members)
    with measured(outcome, pid):
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        for consumer in consumers:
            consumer.subscribe([topic])
        while not _is_stable(consumers):
            if time.monotonic() > deadline:
                raise SystemExit(f"{members} members were not stable in {_TIMEOUT_SECONDS} s")
            look = time.monotonic() + _LOOK_SECONDS
            while time.monotonic() < look:
                for consumer in consumers:
                    consumer.poll(0)
    for consumer in consumers:
        consumer.close()
    return outcome


def _is_stable(consumers: list[Consumer]) -> bool:
    owned = [[each.partition for each in consumer.assignment()] for consumer in consumers]
    return all(len(each) == 1 for each in owned) and len({each[0] for each in owned}) == len(owned)


def commit(
    bootstrap: str, pid: int, topic: str, group: str, count: int, window: int, warm_up: int
) -> Outcome:
    """Commits of one partition, `window` of them unanswered at a time."""
    host, _, port = bootstrap.rpartition(":")
    connection = RawConnection(host, int(port))
    frames = [commit_request(group, topic, [0], number) for number in range(warm_up + count)]
    until_accepted(connection, group, topic)
    _pipeline(connection, frames[:warm_up], window, topic)
    outcome = Outcome(count=count)
    with measured(outcome, pid):
        _pipeline(connection, frames[warm_up:], window, topic)
    connection.close()
    return outcome


def _pipeline(connection: RawConnection, frames: list[bytes], window: int, topic: str) -> None:
    sent = received = 0
    while received < len(frames):
        if sent < len(frames) and sent - received < window:
            burst = frames[sent : received + window]
            connection.send(b"".join(burst))
            sent += len(burst)
        for _ in range(max(1, (sent - received) // 2)):
            if commit_error(connection.receive(), topic):
                raise SystemExit("a commit was refused")
            received += 1


def until_accepted(connection: RawConnection, group: str, topic: str) -> None:
    """The coordinator's topic is created when somebody looks for a coordinator."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        connection.ask(request(_FIND_COORDINATOR, 0, text(group)))
        error = commit_error(connection.ask(commit_request(group, topic, [0], 0)), topic)
        if not error:
            return
        if time.monotonic() > deadline:
            raise SystemExit(f"no coordinator in {_TIMEOUT_SECONDS} s: error {error}")
        time.sleep(0.05)


def commit_request(group: str, topic: str, partitions: list[int], offset: int) -> bytes:
    """OffsetCommit v2, of a group without members."""
    each = b"".join(struct.pack(">iqh", partition, offset, -1) for partition in partitions)
    body = (
        text(group)
        + struct.pack(">i", -1)
        + text("")
        + struct.pack(">qi", -1, 1)
        + text(topic)
        + struct.pack(">i", len(partitions))
        + each
    )
    return request(_OFFSET_COMMIT, 2, body)


def commit_error(response: bytes, topic: str) -> int:
    """The error code of the first partition."""
    return int(struct.unpack_from(">h", response, 4 + 4 + 2 + len(topic) + 4 + 4)[0])


def committed(connection: RawConnection, group: str, topic: str, partition: int) -> int:
    """OffsetFetch v1; -1 while there is none, or while the coordinator is loading."""
    body = text(group) + struct.pack(">i", 1) + text(topic) + struct.pack(">ii", 1, partition)
    response = connection.ask(request(_OFFSET_FETCH, 1, body))
    return int(struct.unpack_from(">q", response, 4 + 4 + 2 + len(topic) + 4 + 4)[0])


WORKLOADS: dict[str, Callable[..., Outcome]] = {"join": join, "commit": commit}


if __name__ == "__main__":
    print(json.dumps(asdict(WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2])))), flush=True)
