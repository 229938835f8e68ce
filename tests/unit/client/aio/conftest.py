"""The asyncio face in virtual time, against scripted brokers on a simulated network."""

from collections.abc import Callable, Coroutine, Iterator
from random import Random
from typing import Any

import pytest

from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Conditions, SimulatedNetwork

Run = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    virtual = VirtualLoop()
    SimulatedNetwork(virtual, Random(1), Conditions(delay_seconds_max=0.0005))
    yield virtual
    failures = virtual.failures
    virtual.close()
    assert failures == []


@pytest.fixture
def run(loop: VirtualLoop) -> Run:
    return loop.run
