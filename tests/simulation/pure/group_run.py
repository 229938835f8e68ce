"""Groups whose coordinator moves from node to node, by either protocol; and what must hold.

No committed offset is lost or goes back (I14), one owner per partition and generation (I15), polls
without gaps (I13), generations only grow, what a log gives is what its writer had in memory, and
after the faults every partition has an owner again within a bound (I17).
"""

from collections.abc import Callable
from functools import partial
from itertools import chain, pairwise
from uuid import UUID

from headrace.core.ids import NodeId, Offset
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.consumer.settings import ConsumerGroupSettings
from headrace.groups.settings import GroupSettings
from headrace.groups.shard import GroupShard
from headrace.metadata.image import Image, PartitionRegistration, Topic
from headrace.protocol.schemas.consumer_groups import ConsumerGroupMetadataValue
from headrace.protocol.schemas.group_offsets import GroupMetadataValue, OffsetCommitValue
from tests.simulation.faults import FaultPlan, client_host, node_host
from tests.simulation.pure.kernel import Kernel, NodeContext
from tests.simulation.pure.members import (
    GROUP,
    SESSION_MS,
    TOPIC,
    ClassicMember,
    ConsumerMember,
    Member,
    Watcher,
)
from tests.simulation.pure.shards import Elections, Leadership, ShardProgram, load
from tests.simulation.streams import Streams
from tests.support.group_checks import check_group
from tests.support.group_history import Final, GroupHistory
from tests.support.history_checks import Violation

NODES = 3
MEMBERS = 3
PARTITIONS = 3
SECONDS = 15.0
KINDS = ("kill", "power_cut", "clean_restart", "partition", "slow_link", "slow_disk", "wrong_clock")
SETTLED_SECONDS_MAX = 40.0
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=0,
    min_session_timeout_ms=1_000,
    consumer=ConsumerGroupSettings(session_timeout_ms=SESSION_MS),
)

WRITTEN_STATES = (State.STABLE, State.EMPTY)
NewShard = Callable[[], GroupShard]
NewProgram = Callable[[NodeContext, Leadership], ShardProgram]


def drawn_plan(seed: int) -> FaultPlan:
    return FaultPlan.drawn(
        Streams(seed)("faults"), seconds=SECONDS, nodes=NODES, kinds=KINDS, gap_seconds=3.0
    )


def image_with_topic() -> Image:
    registration = PartitionRegistration(NodeId(0), 0, 0, (0,), (0,))
    topic = Topic(TOPIC, UUID(int=1), (registration,) * PARTITIONS)
    return Image("", Offset(0), topics={TOPIC: topic}, topics_by_id={topic.id: topic})


IMAGE = image_with_topic()


def honest(node: NodeContext, leadership: Leadership) -> ShardProgram:
    return ShardProgram(node, leadership, SETTINGS, IMAGE)


class GroupRun:
    """One seed: members of the classic protocol where it is even, of KIP-848 where it is odd."""

    def __init__(
        self, seed: int, plan: FaultPlan | None = None, *, new_program: NewProgram = honest
    ) -> None:
        self.seed = seed
        self.plan = drawn_plan(seed) if plan is None else plan
        self.kernel = Kernel(seed, self.plan)
        self.history = GroupHistory()
        self.violations: list[Violation] = []
        self._lives = self.kernel.streams("lives")
        self._members: dict[str, Member] = {}
        self._lives_lived = 0
        nodes = [node_host(node) for node in range(1, NODES + 1)]
        self.elections = Elections(self.kernel, nodes, new_program)

    def __str__(self) -> str:
        happened = "\n".join(self.kernel.events)
        return f"GroupRun({self.seed}) with\n{self.plan}\n\nwhat happened:\n{happened}"

    def run(self) -> list[Violation]:
        kernel = self.kernel
        self.elections.elect(node_host(1))
        for number in range(1, MEMBERS + 1):
            self._enter(client_host(number))
        watcher = kernel.host("watcher")
        watcher.start(Watcher(watcher, self._coordinator, self.history, PARTITIONS))
        self._plan_lives()
        for look in range(1, 4):
            kernel.at(look * self.plan.seconds * 300, self._check_replay)
        kernel.run_until(self.plan.seconds * 1000)
        kernel.heal()
        self._settle()
        self._check_replay()
        self._check_committed()
        for member in self._members.values():
            member.stop()
        self.violations += check_group(self.history)
        return self.violations

    def _coordinator(self) -> str:
        leader = self.elections.leadership.leader
        assert leader is not None
        return leader.host

    # Members

    def _enter(self, host: str) -> None:
        self._lives_lived += 1
        name = f"member-{self._lives_lived}"
        node = self.kernel.host(host)
        member: Member
        if self.seed % 2:
            member = ConsumerMember(node, self._coordinator, self.history, name)
        else:
            member = ClassicMember(node, self._coordinator, self.history, name, PARTITIONS)
        self._members[host] = member
        node.start(member)

    def _plan_lives(self) -> None:
        """Some leave, some die without a word; each comes back as somebody else."""
        for _ in range(3):
            host = client_host(self._lives.randint(1, MEMBERS))
            at = self._lives.random() * self.plan.seconds * 1000
            leaves = self._lives.random() < 0.5
            back = at + self._lives.random() * 3000
            self.kernel.at(at, partial(self._go, host, leaves))
            self.kernel.at(back, partial(self._return, host))

    def _go(self, host: str, leaves: bool) -> None:
        member = self._members.pop(host, None)
        if member is None:
            return
        if leaves and isinstance(member, ConsumerMember | ClassicMember):
            member.leave()
        else:
            member.stop()
        self.kernel.note(f"{member.name} {'leaves' if leaves else 'dies'}")
        self.kernel.host(host).die()

    def _return(self, host: str) -> None:
        if host not in self._members:
            self._enter(host)

    # Judging

    def _settle(self) -> None:
        """Nothing goes wrong any more: soon each partition has one reader."""
        kernel, began = self.kernel, self.kernel.now_ms
        for host in (client_host(number) for number in range(1, MEMBERS + 1)):
            self._return(host)
        owners: dict[tuple[str, int], str] = {}
        while kernel.now_ms - began < SETTLED_SECONDS_MAX * 1000:
            kernel.run_until(kernel.now_ms + 1000)
            owners = {
                (TOPIC, partition): member.name
                for member in self._members.values()
                for partition in member.owned
            }
            read = sum(len(member.owned) for member in self._members.values())
            if len(owners) == read == PARTITIONS:
                break
        everything = {(TOPIC, partition): () for partition in range(PARTITIONS)}
        settled = (kernel.now_ms - began) / 1000
        self.history.final = Final(everything, owners, settled, SETTLED_SECONDS_MAX)

    def _check_replay(self) -> None:
        leader = self.elections.leadership.leader
        program = None if leader is None else leader.program
        if leader is None or not isinstance(program, ShardProgram):
            return
        group = program.shard.groups.get(GROUP)
        if isinstance(group, ClassicGroup) and group.state not in WRITTEN_STATES:
            return  # a rebalance is written down at its end
        replayed, live = state(load(leader.log.entries)), state(program.shard)
        if replayed != live:
            self._violated("replay", f"{replayed} is not {live}")

    def _check_committed(self) -> None:
        """What was acknowledged is in the committed log, and generations only grow there."""
        offsets: dict[tuple[str, int], int] = {}
        generations: list[int] = []
        committed = chain.from_iterable(self.elections.leadership.committed)
        for (key, value), _ in committed:
            if isinstance(value, OffsetCommitValue):
                offsets[key.topic, key.partition] = value.offset
            elif isinstance(value, GroupMetadataValue):
                generations.append(value.generation)
            elif isinstance(value, ConsumerGroupMetadataValue):
                generations.append(value.epoch)
        for commit in self.history.commits:
            if commit.ok and offsets.get(commit.partition, -1) < commit.offset:
                self._violated("I14", f"{commit} is lost: {offsets.get(commit.partition)}")
        if any(before > after for before, after in pairwise(generations)):
            self._violated("I15", f"generations go back: {generations}")

    def _violated(self, invariant: str, message: str) -> None:
        self.violations.append(Violation(invariant, message))


def state(shard: GroupShard) -> tuple[object, object]:
    """All that is written down of a shard."""
    groups = {
        name: group.record() if isinstance(group, ClassicGroup) else group
        for name, group in shard.groups.items()
    }
    return groups, shard.offsets
