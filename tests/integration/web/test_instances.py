"""What an instance owes its client when answers do not arrive."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from headrace.client import Client, NewTopic, ProducerSettings
from headrace.core.ids import TopicPartition
from headrace.gateway import Gateway, MemberSettings, OutRecord
from headrace.web import media
from headrace.web.instances import Instance, UnacknowledgedPositions
from tests.integration.web.test_consumers import Consumer
from tests.support.gateways import gateway_of
from tests.support.web import Web, until


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_of("local", tmp_path) as found:
        await found.admin.create_topics([NewTopic("orders", 2)])
        yield found


async def instance_of(gateway: Gateway, name: str) -> Instance:
    given = UnacknowledgedPositions()
    member = await gateway.join("g", ["orders"], settings=MemberSettings(), on_revoked=given.forget)
    return Instance("g", name, media.JSON, member, given, auto_commit=True)


async def read(instance: Instance, count: int) -> list[tuple[int, int]]:
    """At least so many records, by partition and offset."""
    found: list[tuple[int, int]] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            polled = await instance.poll(500, 100)
            found += [
                (where.partition, each.offset) for where, them in polled.items() for each in them
            ]
    return sorted(found)


async def produce(gateway: Gateway, count: int) -> None:
    for partition in (0, 1):
        await gateway.produce("orders", [OutRecord(b"1", partition=partition)] * count)


async def test_records_that_come_as_their_client_goes_come_again(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The poll ends and its request is cancelled in the same turn of the event loop."""
    instance = await instance_of(gateway, "a")
    await until(lambda: len(instance.member.assignment) == 2)
    poll = instance.member.poll
    reading = asyncio.ensure_future(instance.poll(20_000, 100))

    async def then_go(timeout_ms: float, max_records: int, wants: None) -> object:
        found = await poll(timeout_ms, max_records, wants)
        asyncio.get_running_loop().call_soon(reading.cancel)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(instance.member, "poll", then_go)
        await asyncio.sleep(0)
        await produce(gateway, 1)
        with pytest.raises(asyncio.CancelledError):
            await reading
    instance.rewind_unacknowledged()
    assert await read(instance, 2) == [(0, 0), (1, 0)]
    instance.mark_delivered()
    await instance.commit_delivered()
    assert [each.offset for each in (await gateway.offsets("g")).values()] == [1, 1]
    await instance.close()


async def test_what_others_have_read_meanwhile_is_not_taken_back(gateway: Gateway) -> None:
    """A partition goes to another member, which commits and leaves, while an answer is stuck."""
    await produce(gateway, 5)
    first = await instance_of(gateway, "a")
    assert len(await read(first, 10)) == 10
    other = await instance_of(gateway, "b")
    await until(lambda: len(other.member.assignment) == 1)
    (moved,) = other.member.assignment
    assert len(await read(other, 5)) == 5
    other.mark_delivered()
    await other.close()
    await until(lambda: len(first.member.assignment) == 2)
    first.rewind_unacknowledged()
    kept = TopicPartition("orders", 1 - moved.partition)
    assert await first.member.position(moved) == 5
    assert await first.member.position(kept) == 0
    await first.close()


def test_an_instance_can_be_deleted_while_its_client_reads_nothing(
    web: Web, http: httpx.Client, topic: str, group: str
) -> None:
    # More than all buffers between can hold.
    large = web.broker.create_topic(f"{topic}-large", configs={"max.message.bytes": 30_000_000})
    settings = ProducerSettings(request_bytes_max=30_000_000)
    with Client(web.broker.bootstrap_servers) as client, client.producer(settings) as producer:
        producer.send(large, b'"%s"' % (b"x" * 16_000_000)).result()
    consumer = Consumer(http, group)
    assert consumer.post("/assignments", {"partitions": [{"topic": large, "partition": 0}]})
    path = httpx.URL(consumer.base).path
    with socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(web.address)
        query = "records?timeout=20000"
        stalled.sendall(f"GET {path}/{query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert stalled.recv(100)
        started = time.monotonic()
        consumer.close()
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("name", [".", ".."])
def test_an_instance_needs_a_name_that_an_address_can_hold(
    http: httpx.Client, group: str, name: str
) -> None:
    answer = http.post(f"/consumers/{group}", json={"name": name})
    assert answer.status_code == 422
