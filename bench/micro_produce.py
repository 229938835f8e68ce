"""How long one produce request of 100 bytes with acks=1 takes without a socket, in microseconds.

    fast    the request that a connection repeats, recognized by its first bytes
    whole   the same request through decoder, handler and encoder

Run as `python -m bench.micro_produce`; CPU time of the event loop's thread, best of several rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import cast

from headrace.broker.connection import Connection
from headrace.broker.frame_dispatcher import FrameDispatcher
from headrace.client.aio.client import AsyncClient
from headrace.client.core.models import NewTopic
from headrace.core.broker_configs import BrokerConfig
from headrace.node import real_node
from headrace.protocol.frames import encode_request
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch

ROUNDS = 15
REQUESTS = 1_000
TOPIC = "orders"


class NullTransport(asyncio.Transport):
    """Takes whatever it is given at once, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.responses = 0

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:  # noqa: ARG002
        self.responses += 1

    def writelines(self, list_of_data: Sequence[bytes | bytearray | memoryview]) -> None:  # type: ignore[override]  # noqa: ARG002
        self.responses += 1

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


def frame() -> bytes:
    """A Java producer's request: one batch of one record of 100 bytes."""
    batch = bytes(encode_batch([Record(0, 1_000, None, b"v" * 100, ())]))
    data = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])
    return bytes(encode_request(request, 9, 1, "producer-1"))


def microseconds(connection: Connection, data: bytes, *, whole: bool) -> float:
    """CPU time of one request."""
    frames = cast(FrameDispatcher, connection.frames)
    began = time.thread_time()
    for _ in range(REQUESTS):
        if whole:
            frames.produce_fast_path = frames.produced_last = None
        connection.get_buffer(-1)[: len(data)] = data
        connection.buffer_updated(len(data))
    return (time.thread_time() - began) / REQUESTS * 1e6


async def measure(rounds: int) -> dict[str, float]:
    """Best times of both ways, measured in turns."""
    best = {"fast": float("inf"), "whole": float("inf")}
    with tempfile.TemporaryDirectory() as directory:
        settings = {"log.dirs": directory, "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = real_node(BrokerConfig.from_static(settings))
        await node.start()
        [(host, port)] = node.addresses.values()
        async with AsyncClient(f"{host}:{port}") as client:
            await client.admin.create_topics([NewTopic(TOPIC, partitions=1)])
        connection = node.listeners[0].connection()
        transport = NullTransport()
        connection.connection_made(transport)
        data = frame()
        for _ in range(rounds):
            for name in best:
                spent = microseconds(connection, data, whole=name == "whole")
                best[name] = min(best[name], spent)
                await asyncio.sleep(0)
        assert transport.responses == 2 * rounds * REQUESTS, "a request was not answered at once"
        await node.stop()
    return best


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.micro_produce", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of a thousand requests each")
    best = asyncio.run(measure(parser.parse_args(arguments).rounds))
    for name, spent in best.items():
        print(f"{name:6} {spent:5.1f} us")


if __name__ == "__main__":
    main(sys.argv[1:])
