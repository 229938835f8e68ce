"""Consumer groups with members of both protocols: one owner at most, and in the end one.

Classic members join, sync, heartbeat, give up and crash at any moment beside members of the
consumer protocol, as they do while a group is migrated.
"""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.assignors.model import TopicIdPartition
from headrace.groups.consumer.group import ConsumerGroup
from headrace.groups.consumer.settings import MigrationPolicy
from tests.support.consumer_groups import GROUP, Client, Coordinator
from tests.support.migrating_members import ClassicClient


class MixedWorld:
    """One group that stays on the new protocol, whoever is in it."""

    def __init__(self) -> None:
        self.coordinator = Coordinator(migration_policy=MigrationPolicy.UPGRADE)
        self.coordinator.set_topic("t", 5)
        self.modern: list[Client] = []
        self.classic: list[ClassicClient] = []
        self.names = 0

    def run(self, script: list[tuple[int, int]]) -> None:
        moves = (
            self.modern_joins,
            self.classic_joins,
            self.modern_beats,
            self.modern_beats,
            self.modern_obeys,
            self.classic_beats,
            self.classic_rejoins,
            self.classic_rejoins,
            self.classic_syncs,
            self.all_modern,
            self.all_modern,
            self.classic_follows,
            self.classic_follows,
            self.everybody,
            self.everybody,
            self.modern_leaves,
            self.classic_leaves,
            self.somebody_crashes,
            self.wait,
            self.grow,
            self.restart,
        )
        for move, number in script:
            moves[move % len(moves)](number)
            self.check()

    @property
    def is_alive(self) -> bool:
        """Whether there is a consumer group that somebody is in."""
        group = self.coordinator.shard.groups.get(GROUP)
        return isinstance(group, ConsumerGroup) and bool(group.members)

    def modern_joins(self, _: int) -> None:
        self.names += 1
        self.modern.append(Client(f"m{self.names}", ["t"]))
        self.modern[-1].beat(self.coordinator)

    def classic_joins(self, number: int) -> None:
        if self.is_alive:
            eager = number % 2 == 0
            protocols = ("range", "cooperative-sticky")[:: 1 if eager else -1]
            self.classic.append(ClassicClient(self.coordinator, protocols=protocols))
            self.classic[-1].enter()

    def modern_beats(self, number: int) -> None:
        if self.modern:
            self.modern[number % len(self.modern)].beat(self.coordinator)

    def modern_obeys(self, number: int) -> None:
        if self.modern:
            self.modern[number % len(self.modern)].reconcile()

    def pick(self, number: int) -> ClassicClient | None:
        if not self.classic or not self.is_alive:
            return None
        return self.classic[number % len(self.classic)]

    def classic_beats(self, number: int) -> None:
        if member := self.pick(number):
            self.heed(member, member.beat())

    def classic_rejoins(self, number: int) -> None:
        if member := self.pick(number):
            if member.protocols[0] == "range":
                member.owned = {}  # an eager member stops reading before it joins
            try:
                member.enter()
            except ApiError as error:
                self.heed(member, error.code)

    def classic_syncs(self, number: int) -> None:
        if member := self.pick(number):
            self.heed(member, member.sync())

    def classic_follows(self, number: int) -> None:
        if member := self.pick(number):
            code = member.beat()
            self.heed(member, code)
            if code is not ErrorCode.NONE:
                self.classic_rejoins(number)
                self.classic_syncs(number)

    def heed(self, member: ClassicClient, code: ErrorCode) -> None:
        """Whoever is put out of the group stops reading at once and comes back as a new one."""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            member.owned, member.generation, member.member_id = {}, -1, ""

    def everybody(self, _: int) -> None:
        for number in range(len(self.classic)):
            self.classic_follows(number)
        self.all_modern(0)
        self.coordinator.advance(500)

    def all_modern(self, _: int) -> None:
        for client in self.modern:
            client.beat(self.coordinator)
            client.reconcile()

    def modern_leaves(self, number: int) -> None:
        if self.modern:
            client = self.modern.pop(number % len(self.modern))
            if client.epoch > 0 and client.member_id in self.coordinator.group.members:
                client.leave(self.coordinator)

    def classic_leaves(self, number: int) -> None:
        if member := self.pick(number):
            self.classic.remove(member)
            member.leave()

    def somebody_crashes(self, number: int) -> None:
        if self.classic and number % 2:
            self.classic.pop(number % len(self.classic))
        elif self.modern:
            self.modern.pop(number % len(self.modern))

    def wait(self, number: int) -> None:
        self.coordinator.advance((1_000, 9_000, 50_000)[number % 3])

    def grow(self, number: int) -> None:
        known = self.coordinator.image.topics["t"]
        self.coordinator.set_topic("t", min(len(known.partitions) + number % 2, 12))

    def restart(self, _: int) -> None:
        self.coordinator.restart()

    # What must hold

    def owned_by_classic(self, member: ClassicClient) -> set[TopicIdPartition]:
        topic_id = self.coordinator.image.topics["t"].id
        return {TopicIdPartition(topic_id, number) for number in member.owned.get("t", ())}

    def check(self) -> None:
        assert self.coordinator.restarted.groups == self.coordinator.shard.groups
        if not self.is_alive:
            return
        members = self.coordinator.group.members
        believed: Counter[TopicIdPartition] = Counter()
        for client in self.modern:
            if client.member_id in members and client.epoch > 0:
                believed.update(client.owned)
        for member in self.classic:
            if member.member_id in members:
                believed.update(self.owned_by_classic(member))
        assert all(count == 1 for count in believed.values()), "two members believe to own it"

    def check_settled(self) -> None:
        group = self.coordinator.group
        assert group.state_name() == "Stable"
        owned = [self.owned_by_classic(member) for member in self.classic]
        owned += [client.owned for client in self.modern]
        assert sum(map(len, owned)) == len(set().union(*owned))
        assert set().union(*owned) == self.coordinator.partitions_of(["t"])
        assert max(map(len, owned)) - min(map(len, owned)) <= 1


scripts = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 11)), min_size=20, max_size=70)


@given(script=scripts)
def test_members_of_both_protocols_never_own_one_partition_together(
    script: list[tuple[int, int]],
) -> None:
    world = MixedWorld()
    world.modern_joins(0)
    world.run(script)
    world.modern_joins(0)
    for _ in range(60):  # past every timeout, at the pace of quick heartbeats
        world.coordinator.advance(1_000)
        world.everybody(0)
        world.check()
    world.check_settled()
