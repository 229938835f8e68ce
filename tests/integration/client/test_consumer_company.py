"""Our consumer in one group with librdkafka's: each must understand what the other leader says."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import confluent_kafka
import pytest

from headrace.client import AsyncClient, ConsumerSettings
from tests.integration.client.members import (
    PATIENCE_SECONDS,
    Crew,
    fill,
    new_settings,
    new_topic,
)
from tests.support.brokers import BrokerProcess


class Foreigner:
    """A consumer of another make, polled in a thread of its own."""

    def __init__(self, servers: str, settings: ConsumerSettings, topic: str) -> None:
        config: dict[str, Any] = {
            "bootstrap.servers": servers,
            "group.id": settings.group_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if settings.group_protocol == "consumer":
            config["group.protocol"] = "consumer"
        else:
            config["partition.assignment.strategy"] = settings.assignors[0]
            config["session.timeout.ms"] = settings.session_timeout_ms
            config["heartbeat.interval.ms"] = settings.heartbeat_interval_ms
        self.values: set[bytes] = set()
        self.assigned: set[int] = set()
        self._consumer = confluent_kafka.Consumer(config)
        self._consumer.subscribe([topic])
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            message = self._consumer.poll(0.05)
            self.assigned = {each.partition for each in self._consumer.assignment()}
            if message is not None and message.error() is None:
                self.values.add(message.value() or b"")
        self._consumer.close()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(PATIENCE_SECONDS)


@pytest.mark.parametrize("ours_first", [True, False], ids=["we lead", "they lead"])
@pytest.mark.parametrize("protocol", ["eager", "cooperative", "consumer"])
def test_members_of_two_makes_share_a_topic(
    broker: BrokerProcess, protocol: str, ours_first: bool
) -> None:
    async def story() -> None:
        async with AsyncClient(broker.bootstrap_servers) as client:
            topic = await new_topic(client, 6, records=120)
            settings = replace(new_settings(protocol), offset_reset="earliest")
            crew = Crew()
            if ours_first:
                await crew.enlist(client.consumer(settings), topic)
                await crew.until(lambda: crew.is_divided(6))
            foreigner = Foreigner(broker.bootstrap_servers, settings, topic)
            try:
                if not ours_first:
                    await wait_for(lambda: len(foreigner.assigned) == 6)
                    await crew.enlist(client.consumer(settings), topic)

                def is_shared() -> bool:
                    theirs, [ours] = sorted(foreigner.assigned), crew.shares()
                    return len(ours) == 3 and sorted([*ours, *theirs]) == list(range(6))

                await crew.until(is_shared)
                await fill(client, topic, 240)
                await crew.until(lambda: len({*crew.values, *foreigner.values}) == 240)
            finally:
                await asyncio.to_thread(foreigner.stop)
            await crew.until(lambda: crew.is_divided(6))

    asyncio.run(asyncio.wait_for(story(), PATIENCE_SECONDS))


async def wait_for(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.01)
