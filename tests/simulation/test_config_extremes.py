"""Every configuration key at its extremes: refused in words, or taken by a broker that starts,
idles without work, stops, and starts again; at the start and while it runs.

In virtual time: what an idle broker does is counted in steps of its loop, not in CPU time.
"""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from headrace.client import (
    ConfigChange,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
)
from headrace.core.broker_configs import BROKER_KEYS, BrokerConfig
from headrace.core.config_keys import (
    INT_MAX,
    LONG_MAX,
    ConfigKey,
    ConfigType,
    OneOf,
    Range,
    Update,
    format_value,
)
from headrace.core.errors import ApiError, InvalidConfig
from headrace.core.group_configs import GROUP_KEYS
from headrace.core.topic_configs import TOPIC_KEYS
from tests.simulation.clients import ClientHost
from tests.simulation.loop import VirtualLoop
from tests.simulation.machine import Machine
from tests.simulation.network import Conditions, SimulatedNetwork
from tests.simulation.processes import Process
from tests.simulation.streams import Streams
from tests.support.history import History

IDLE_SECONDS = 1.0
# Two duties at their shortest period, 10 ms, and some rare ones; a loop that never sleeps takes
# a million.
STEPS_MAX = 4_000
# Where a broker is and what it is called: no value of these is an extreme.
PLACES = {
    "listeners", "advertised.listeners", "listener.security.protocol.map", "log.dirs", "log.dir",
    "broker.rack", "http.allowed.hosts", "http.allowed.origins", "http.listener", "text.listener",
}  # fmt: skip


def extremes(known: ConfigKey) -> Iterator[str]:
    """Values at which a key may go wrong, some of which it refuses."""
    match known.type:
        case ConfigType.BOOLEAN:
            yield from ("true", "false")
        case ConfigType.STRING | ConfigType.LIST:
            yield ""
            yield "no such word"
            if isinstance(known.valid, OneOf):
                yield from known.valid.words
            if known.default:
                yield str(format_value(known.default))
        case ConfigType.DOUBLE:
            yield from ("-1", "0", "1", "1e308", "nan")
        case _:
            largest = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT_MAX}
            limits = [-1, 0, 1, largest.get(known.type, LONG_MAX)]
            if isinstance(known.valid, Range):
                limits += [int(each) for each in known.valid if each is not None]
            if known.default is not None:
                limits.append(known.default)
            yield from map(str, dict.fromkeys(limits))


AT_START = [
    (name, value)
    for name, known in BROKER_KEYS.items()
    if name not in PLACES
    for value in extremes(known)
]
WHILE_RUNNING = [
    *(
        (ConfigResourceType.BROKER, known)
        for known in BROKER_KEYS.values()
        if known.update is not Update.READ_ONLY
    ),
    *((ConfigResourceType.TOPIC, known) for known in TOPIC_KEYS.values()),
    *((ConfigResourceType.GROUP, known) for known in GROUP_KEYS.values()),
]
NAMES = {
    ConfigResourceType.BROKER: "",
    ConfigResourceType.TOPIC: "t",
    ConfigResourceType.GROUP: "g",
}


class Stage:
    """A machine in virtual time, and somebody who configures it."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.loop = VirtualLoop()
        streams = Streams(1)
        network = SimulatedNetwork(
            self.loop, streams("network"), Conditions(delay_seconds_max=0.0001)
        )
        self.machine = Machine(self.loop, network, streams, settings=settings)
        self.host = ClientHost(self.loop, streams, History())

    async def idle_steps(self) -> int:
        """How much the broker does while nobody asks for anything."""
        before = self.loop._steps
        await asyncio.sleep(IDLE_SECONDS)
        return self.loop._steps - before

    def close(self) -> None:
        self.machine.crash(None)
        self.loop.run(asyncio.sleep(1))
        self.loop.close()


def refusal(settings: Mapping[str, str]) -> str | None:
    try:
        BrokerConfig.from_static(settings)
    except InvalidConfig as error:
        return error.message
    return None


@pytest.mark.parametrize("name", sorted({name for name, _ in AT_START}))
def test_an_extreme_value_is_refused_in_words_or_served_without_a_busy_loop(name: str) -> None:
    taken = []
    for value in (value for other, value in AT_START if other == name):
        said = refusal({name: value})
        if said is not None:
            assert name in said
            assert len(said) > len(name) + 10, said
        else:
            taken.append(value)
    assert taken
    for value in taken:
        stage = Stage({name: value})

        async def life(stage: Stage = stage, value: str = value) -> None:
            for start in range(2):
                assert await stage.machine.start()
                steps = await stage.idle_steps()
                assert steps < STEPS_MAX, f"{name}={value}: {steps} steps, start {start}"
                assert await stage.machine.stop()

        try:
            stage.loop.run(stage.loop.start(Process("test"), life()))
        finally:
            stage.close()


@pytest.mark.parametrize(
    ("kind", "known"),
    WHILE_RUNNING,
    ids=[f"{k.name.lower()}-{each.name}" for k, each in WHILE_RUNNING],
)
def test_a_running_broker_survives_every_extreme_and_starts_with_it(
    kind: ConfigResourceType, known: ConfigKey
) -> None:
    """With a topic that has records and a connection that is open; cleaner and retention look
    often, so that each value is used."""
    stage = Stage({"log.cleaner.backoff.ms": "100", "log.retention.check.interval.ms": "100"})

    async def life() -> None:
        assert await stage.machine.start()
        client = stage.host.client("admin")
        await client.admin.create_topics(
            [NewTopic("t", 1, 1, {"cleanup.policy": "compact,delete"})]
        )
        async with client.producer() as producer:
            for number in range(3):
                await producer.send_and_wait("t", b"v", key=b"%d" % (number % 2))
        resource = ConfigResource(kind, NAMES[kind])
        taken = None
        refused: list[str] = []
        for value in extremes(known):
            try:
                await client.admin.alter_configs({resource: [ConfigChange(known.name, value)]})
                taken = value
            except (ApiError, InvalidConfig) as error:
                refused.append(str(error))
            steps = await stage.idle_steps()
            assert steps < STEPS_MAX, f"{known.name}={value}: {steps} steps"
        assert taken is not None
        assert all(known.name in said for said in refused), refused
        described = (await client.admin.describe_configs([resource]))[resource]
        assert described[known.name].value == format_value(known.parse(taken))
        await client.close()
        assert await stage.machine.stop()
        assert await stage.machine.start()
        assert await stage.idle_steps() < STEPS_MAX
        assert await stage.machine.stop()

    try:
        stage.loop.run(stage.loop.start(Process("test"), life()))
        assert not stage.loop.failures
    finally:
        stage.close()
