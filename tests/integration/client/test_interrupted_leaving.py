"""A program that is stopped a second time, while its consumer says goodbye, leaves all the same."""

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from headrace.client import AsyncClient, Client, ConsumerSettings
from headrace.testing import Broker

pytestmark = pytest.mark.parametrize("auto_commit", [False, True])


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        running.create_topic("orders")
        with Client(running.bootstrap_servers) as client, client.producer() as producer:
            producer.send_and_wait("orders", b"x")
        yield running


def settings_of(auto_commit: bool) -> ConsumerSettings:
    return ConsumerSettings(group_id="g", offset_reset="earliest", auto_commit=auto_commit)


def members(broker: Broker) -> list[object]:
    with Client(broker.bootstrap_servers) as client:
        return list(client.admin.describe_groups(["g"])["g"].members)


async def test_a_task_that_is_cancelled_while_it_leaves(auto_commit: bool, broker: Broker) -> None:
    async with AsyncClient(broker.bootstrap_servers) as client:
        consumer = client.consumer(settings_of(auto_commit))
        await consumer.subscribe(["orders"])
        while not await consumer.poll(1000):
            pass
        broker.pause()
        closing = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.sleep(0)
        broker.resume()
        await asyncio.wait([closing])
        assert closing.cancelled()
    assert members(broker) == []


def test_a_thread_that_is_interrupted_while_it_leaves(auto_commit: bool, broker: Broker) -> None:
    main = threading.get_ident()

    def interrupt() -> None:
        # Without the automatic commit it is the farewell itself that is under way.
        while not is_waiting_in(main, "_leave", "_call" if auto_commit else "_call_uninterrupted"):
            time.sleep(0.001)
        signal.pthread_kill(main, signal.SIGINT)
        while is_waiting_in(main, "_call"):
            time.sleep(0.001)
        broker.resume()

    with Client(broker.bootstrap_servers) as client:
        consumer = client.consumer(settings_of(auto_commit))
        consumer.subscribe(["orders"])
        while not consumer.poll(1000):
            pass
        broker.pause()
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            consumer.close()
        interrupter.join()
    assert members(broker) == []


def is_waiting_in(thread: int, *functions: str) -> bool:
    """Whether the thread waits for something in a call of all of these."""
    frame = sys._current_frames()[thread]
    names = [frame.f_code.co_name]
    while frame.f_back is not None:
        frame = frame.f_back
        names.append(frame.f_code.co_name)
    return names[0] == "wait" and set(functions) <= set(names)
