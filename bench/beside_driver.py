"""The client side of the rows about neighbours: what others notice while one client is a burden."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench.driver import Outcome, measured
from bench.wire import (
    RawConnection,
    fetch_request,
    produce_error,
    produce_many_request,
    produce_request,
    record_batch,
    request,
)

_API_VERSIONS = 18
_LEAST_LOOKS = 50
_RECEIVE_BYTES = 4 * 1024


def waits(bootstrap: str, pid: int, flag: str, every_ms: float) -> Outcome:
    """ApiVersions again and again until a file named `flag` appears: how long anyone waits."""
    connection = _connection(bootstrap)
    frame = request(_API_VERSIONS, 0, b"")
    return _repeat(lambda: connection.ask(frame), pid, flag, every_ms)


def produces(
    bootstrap: str, pid: int, topic: str, acks: int, flag: str, every_ms: float
) -> Outcome:
    """The same with a small produce."""
    connection = _connection(bootstrap)
    frame = produce_request(topic, 0, acks, record_batch(os.urandom(100)))

    def send() -> None:
        if produce_error(connection.ask(frame), topic) != 0:
            raise SystemExit("a produce was refused")

    return _repeat(send, pid, flag, every_ms)


def _repeat(action: Callable[[], object], pid: int, flag: str, every_ms: float) -> Outcome:
    for _ in range(_LEAST_LOOKS):
        action()
    print("ready", flush=True)
    outcome = Outcome()
    with measured(outcome, pid):
        while not Path(flag).exists() or len(outcome.latencies_ms) < _LEAST_LOOKS:
            start = time.perf_counter()
            action()
            outcome.latencies_ms.append((time.perf_counter() - start) * 1e3)
            time.sleep(every_ms / 1e3)
    outcome.count = len(outcome.latencies_ms)
    return outcome


def unread(
    bootstrap: str, pid: int, topic: str, partitions: int, readers: int, fetch_bytes: int, flag: str
) -> Outcome:
    """Connections that ask for much and read none of it, until `flag` appears."""
    host, _, port = bootstrap.rpartition(":")
    frame = fetch_request(topic, range(partitions), fetch_bytes)
    held = []
    outcome = Outcome(count=readers)
    with measured(outcome, pid):
        for _ in range(readers):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
            one.connect((host, int(port)))
            one.sendall(frame)
            held.append(one)
        print("ready", flush=True)
        while not Path(flag).exists():
            time.sleep(0.05)
    for one in held:
        one.close()
    return outcome


def flush_many(bootstrap: str, pid: int, topic: str, partitions: int, rounds: int) -> Outcome:
    """One request with a record for each of many partitions, on disk before it is answered."""
    connection = _connection(bootstrap)
    frame = produce_many_request(topic, range(partitions), -1, record_batch(os.urandom(100)))
    outcome = Outcome(count=rounds)
    with measured(outcome, pid):
        for _ in range(rounds):
            start = time.perf_counter()
            answer = connection.ask(frame)
            outcome.latencies_ms.append((time.perf_counter() - start) * 1e3)
            if struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic) + 4 + 4)[0] != 0:
                raise SystemExit("a produce was refused")
            time.sleep(0.2)
    return outcome


def _connection(bootstrap: str) -> RawConnection:
    host, _, port = bootstrap.rpartition(":")
    return RawConnection(host, int(port), timeout_seconds=120)


WORKLOADS: dict[str, Callable[..., Outcome]] = {
    "waits": waits,
    "produces": produces,
    "unread": unread,
    "flush_many": flush_many,
}


if __name__ == "__main__":
    print(json.dumps(asdict(WORKLOADS[sys.argv[1]](**json.loads(sys.argv[2])))), flush=True)
