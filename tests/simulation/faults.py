"""What goes wrong in a run, as data: drawn before it, printed as text, cut down to what matters.

    lasts 10.0
    0.731 kill node=1 after=17 down=0.4
    2.214 power_cut node=1 after=0 down=1.1 survival=8812
    3.650 full_disk node=1 room_bytes=1200 seconds=0.9

Each line stands for itself: whatever a fault chooses, down to the bytes that a power cut leaves,
is written in it. So a line can be deleted and the others go on meaning the same (`shrink`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import Any, ClassVar, cast, get_args

SHORT, LONG = 0.001, 0.2
SECONDS = 10.0
GAP_SECONDS = 0.65


@dataclass(frozen=True, slots=True)
class Kill:
    """The process ends after so many more steps on its disk (0: at once); written bytes survive."""

    kind: ClassVar = "kill"
    node: int
    after: int
    down: float

    @classmethod
    def drawn(cls, random: Random, node: int) -> "Kill":
        return cls(node, *_crash(random))


@dataclass(frozen=True, slots=True)
class PowerCut:
    """The machine ends; what was not synced survives as the number `survival` draws it."""

    kind: ClassVar = "power_cut"
    node: int
    after: int
    down: float
    survival: int

    @classmethod
    def drawn(cls, random: Random, node: int) -> "PowerCut":
        return cls(node, *_crash(random), random.getrandbits(32))


@dataclass(frozen=True, slots=True)
class CleanRestart:
    kind: ClassVar = "clean_restart"
    node: int
    down: float

    @classmethod
    def drawn(cls, random: Random, node: int) -> "CleanRestart":
        return cls(node, _seconds(random, 1.0))


@dataclass(frozen=True, slots=True)
class DropConnections:
    """A share of the open connections breaks, with what was on its way."""

    kind: ClassVar = "drop_connections"
    share: float
    draw: int

    @classmethod
    def drawn(cls, random: Random, _node: int) -> "DropConnections":
        return cls(random.choice((0.2, 0.5, 1.0)), random.getrandbits(32))


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """From now on every sync takes up to so long."""

    kind: ClassVar = "slow_disk"
    node: int
    sync_seconds: float

    @classmethod
    def drawn(cls, random: Random, node: int) -> "SlowDisk":
        return cls(node, random.choice((SHORT, 0.01, LONG)))


@dataclass(frozen=True, slots=True)
class FullDisk:
    kind: ClassVar = "full_disk"
    node: int
    room_bytes: int
    seconds: float

    @classmethod
    def drawn(cls, random: Random, node: int) -> "FullDisk":
        return cls(node, random.randint(0, 20_000), _seconds(random, 2.0))


@dataclass(frozen=True, slots=True)
class Partition:
    """Nothing passes between two hosts for a while, or (`one_way`) nothing from a to b."""

    kind: ClassVar = "partition"
    a: str
    b: str
    one_way: int
    seconds: float

    @classmethod
    def drawn(cls, random: Random, node: int) -> "Partition":
        a, b = _hosts(random, node)
        return cls(a, b, random.randint(0, 1), _seconds(random, 3.0))


@dataclass(frozen=True, slots=True)
class SlowLink:
    """What goes from a to b arrives so much later for a while."""

    kind: ClassVar = "slow_link"
    a: str
    b: str
    delay: float
    seconds: float

    @classmethod
    def drawn(cls, random: Random, node: int) -> "SlowLink":
        return cls(*_hosts(random, node), random.choice((0.01, 0.1, 1.0)), _seconds(random, 2.0))


@dataclass(frozen=True, slots=True)
class WrongClock:
    """A machine's wall clock is set wrong, and its clocks run so many millionths too fast."""

    kind: ClassVar = "wrong_clock"
    node: int
    skew_ms: int
    drift_ppm: int

    @classmethod
    def drawn(cls, random: Random, node: int) -> "WrongClock":
        skew_ms = random.choice((0, -1, 1)) * random.randint(0, 3_600_000)
        return cls(node, skew_ms, random.randint(-1000, 1000))


@dataclass(frozen=True, slots=True)
class LyingDisk:
    """Syncs of the topics' data do nothing; never drawn, for tests of the checks."""

    kind: ClassVar = "lying_disk"
    node: int


Fault = (
    Kill
    | PowerCut
    | CleanRestart
    | DropConnections
    | SlowDisk
    | FullDisk
    | Partition
    | SlowLink
    | WrongClock
    | LyingDisk
)

DRAWN: dict[str, Callable[[Random, int], Fault]] = {
    fault.kind: fault.drawn
    for fault in (
        Kill,
        PowerCut,
        CleanRestart,
        DropConnections,
        SlowDisk,
        FullDisk,
        Partition,
        SlowLink,
        WrongClock,
    )
}
_KINDS: dict[str, type[Fault]] = {fault.kind: fault for fault in get_args(Fault)}


@dataclass(frozen=True, slots=True)
class Entry:
    at: float
    fault: Fault

    def __str__(self) -> str:
        values = [f" {name}={getattr(self.fault, name)}" for name, _ in _parameters(self.fault)]
        return f"{self.at:.3f} {self.fault.kind}{''.join(values)}"

    @classmethod
    def parse(cls, line: str) -> "Entry":
        at, kind, *words = line.split()
        given = dict(word.split("=", 1) for word in words)
        fault = _KINDS[kind]
        values: list[Any] = [type_(given.pop(name)) for name, type_ in _parameters(fault)]
        assert not given, f"{kind} has no {', '.join(given)}"
        return cls(float(at), fault(*values))


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """All faults of a run, in order of their times; then everything heals."""

    seconds: float = SECONDS
    entries: tuple[Entry, ...] = ()

    @classmethod
    def drawn(
        cls,
        random: Random,
        *,
        seconds: float = SECONDS,
        nodes: int = 1,
        kinds: Iterable[str] = tuple(DRAWN),
        extra: Sequence[Entry] = (),
        gap_seconds: float = GAP_SECONDS,
    ) -> "FaultPlan":
        """About three faults in two seconds and node: quiet time costs, and shows nothing."""
        chosen = sorted(kinds)
        entries, at = list(extra), 0.0
        while chosen:
            at += random.random() * 2 * gap_seconds / nodes
            if at >= seconds:
                break
            draw = DRAWN[random.choice(chosen)]
            entries.append(Entry(round(at, 3), draw(random, random.randint(1, nodes))))
        return cls(seconds, tuple(entries))

    def without(self, dropped: Iterable[Entry]) -> "FaultPlan":
        gone = set(dropped)
        return FaultPlan(self.seconds, tuple(e for e in self.entries if e not in gone))

    def __str__(self) -> str:
        return "\n".join([f"lasts {self.seconds}", *map(str, self.entries)])

    @classmethod
    def parse(cls, text: str) -> "FaultPlan":
        first, *lines = [line for line in text.splitlines() if line.strip()]
        word, seconds = first.split()
        assert word == "lasts", first
        entries = sorted(map(Entry.parse, lines), key=lambda entry: entry.at)
        return cls(float(seconds), tuple(entries))


def shrink(plan: FaultPlan, fails: Callable[[FaultPlan], bool]) -> FaultPlan:
    """The plan without every entry that is not needed to fail; halves first, then single ones."""
    size = max(1, len(plan.entries) // 2)
    while True:
        position, before = 0, len(plan.entries)
        while position < len(plan.entries):
            smaller = plan.without(plan.entries[position : position + size])
            if fails(smaller):
                plan = smaller
            else:
                position += size
        if size == 1 and len(plan.entries) == before:
            return plan
        size = max(1, size // 2)


def node_host(node: int) -> str:
    return f"node-{node}"


def client_host(node: int) -> str:
    return f"clients-{node}"


def _hosts(random: Random, node: int) -> tuple[str, str]:
    """The way to a node from its clients, or back."""
    hosts = client_host(node), node_host(node)
    return hosts if random.random() < 0.5 else hosts[::-1]


def _parameters(fault: Fault | type[Fault]) -> list[tuple[str, Callable[[str], Any]]]:
    return [(field.name, cast("type[Any]", field.type)) for field in fields(fault)]


def _crash(random: Random) -> tuple[int, float]:
    after = 0 if random.random() < 0.3 else random.randint(1, 60)
    return after, _seconds(random, 1.0)


def _seconds(random: Random, most: float) -> float:
    return round(random.random() * most, 3)
