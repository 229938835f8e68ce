"""The client side of HTTP and text: over bare sockets, as fast as it goes or at a given rate.

`python -m bench.http_and_text_driver WORKLOAD JSON`. Requests are made once and sent as bytes, so
that the client costs little beside the broker.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

import uvloop

from bench.driver import Outcome, measured
from bench.wire import RawConnection, produce_error, produce_request, record_batch

HOST = "127.0.0.1"
_VALUE = "x" * 98
_RECORDS_READ = 10_000
_LINES_IN_FLIGHT = 500
Turn = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[int]]


def http_produce(
    pid: int, port: int, topic: str, batch: int, seconds: float, connections: int, rate: float = 0
) -> Outcome:
    """POSTs of `batch` records of 100 bytes without a key; `rate` events a second, 0: no limit."""
    body = json.dumps({"records": [{"value": _VALUE}] * batch}, separators=(",", ":")).encode()
    request = (
        f"POST /topics/{topic}?acks=1 HTTP/1.1\r\nHost: {HOST}:{port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body

    async def turn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(request)
        await _http_answer(reader)
        return batch

    return _run(pid, port, turn, seconds, connections, rate / batch)


def http_read(pid: int, port: int, topic: str, seconds: float, connections: int) -> Outcome:
    """GETs of 10,000 records from the beginning of partition 0."""
    request = (
        f"GET /topics/{topic}/partitions/0/records?offset=0&count={_RECORDS_READ}"
        f"&max_bytes=8000000 HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n"
    ).encode()

    async def turn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(request)
        await _http_answer(reader)
        return _RECORDS_READ

    return _run(pid, port, turn, seconds, connections, 0)


def text_publish(
    pid: int, port: int, topic: str, seconds: float, connections: int, rate: float = 0
) -> Outcome:
    """PUBLISH lines, some hundred in flight on each connection."""
    request = f"PUBLISH {topic} :{_VALUE}\n".encode() * _LINES_IN_FLIGHT

    async def turn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(request)
        left = _LINES_IN_FLIGHT
        while left:
            answers = await reader.read(1 << 16)
            if b"ERR" in answers or not answers:
                raise SystemExit(f"the text listener said {answers[:200]!r}")
            left -= answers.count(b"\n")
        return _LINES_IN_FLIGHT

    return _run(pid, port, turn, seconds, connections, rate / _LINES_IN_FLIGHT)


def text_consume(pid: int, port: int, topic: str, seconds: float, connections: int) -> Outcome:
    """CONSUME of the first 10,000 messages, again and again."""
    request = f"CONSUME {topic} PARTITION 0 LIMIT {_RECORDS_READ}\n".encode()

    async def turn(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        writer.write(request)
        lines, tail = 0, b""
        while True:
            part = await reader.read(1 << 18)
            lines += part.count(b"\n")
            tail = (tail + part)[-200:]
            last = tail.rstrip(b"\n").rpartition(b"\n")[2]
            if tail.endswith(b"\n") and last.startswith((b"OK", b"ERR")):
                break
        if lines != _RECORDS_READ + 1:
            raise SystemExit(f"{lines} lines, the last of them {last!r}")
        return _RECORDS_READ

    return _run(pid, port, turn, seconds, connections, 0)


def produce_paced(bootstrap: str, pid: int, topic: str, count: int, rate: float) -> Outcome:
    """Small produces on the Kafka listener over a bare socket, at a steady rate, each awaited."""
    host, _, port = bootstrap.rpartition(":")
    connection = RawConnection(host, int(port))
    frame = produce_request(topic, 0, 1, record_batch(b"x" * 100))
    outcome = Outcome(count=count)
    with measured(outcome, pid):
        started = time.perf_counter()
        for number in range(count):
            ahead = started + number / rate - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            sent = time.perf_counter()
            if produce_error(connection.ask(frame), topic) != 0:
                raise SystemExit("a produce was refused")
            outcome.latencies_ms.append((time.perf_counter() - sent) * 1e3)
    return outcome


async def _http_answer(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"the HTTP API said {head[:200]!r}")
    _, found, length = head.partition(b"content-length: ")
    if found:
        await reader.readexactly(int(length.partition(b"\r\n")[0]))
        return
    while size := int(await reader.readline(), 16):
        await reader.readexactly(size + 2)
    await reader.readexactly(2)


def _run(pid: int, port: int, turn: Turn, seconds: float, connections: int, rate: float) -> Outcome:
    """`rate` is in turns a second over all connections."""

    async def one(number: int, started: float) -> int:
        reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 22)
        done, turns = 0, 0
        while time.perf_counter() < started + seconds:
            if rate:
                at = started + (turns * connections + number) / rate
                await asyncio.sleep(max(0, at - time.perf_counter()))
            done += await turn(reader, writer)
            turns += 1
        writer.close()
        return done

    async def everything() -> int:
        started = time.perf_counter()
        return sum(await asyncio.gather(*(one(each, started) for each in range(connections))))

    outcome = Outcome()
    with measured(outcome, pid):
        outcome.count = uvloop.run(everything())
    return outcome


WORKLOADS: dict[str, Callable[..., Outcome]] = {
    "http_produce": http_produce,
    "http_read": http_read,
    "text_publish": text_publish,
    "text_consume": text_consume,
    "produce_paced": produce_paced,
}


def main(workload: str, arguments: dict[str, Any]) -> None:
    if workload != "produce_paced":
        del arguments["bootstrap"]
    print(json.dumps(asdict(WORKLOADS[workload](**arguments))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
