"""Random lives of classic groups: joins, leaves, crashes, lost time, restarts of the broker."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.errors import ErrorCode
from headrace.groups.classic.group import ClassicGroup, State
from headrace.groups.shard import GroupShard
from tests.support.classic_members import GROUP, ClassicConsumer, ClassicWorld

STEPS = 80
MEMBERS_MAX = 8
SETTLE_MS = 120_000


def persistent(shard: GroupShard) -> dict[str, object]:
    """What a record says about each group, and all offsets."""
    groups = {
        group.group_id: group.record()
        for group in shard.groups.values()
        if isinstance(group, ClassicGroup)
    }
    return {"groups": groups, "offsets": shard.offsets}


class Life:
    """One random history; everything in it follows from the seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = ClassicWorld(partitions=self.random.randint(1, 12))
        self.highest: dict[int, int] = {}

    def live(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
            self.check(replay=self.random.random() < 0.2)

    def step(self) -> None:
        world, random = self.world, self.random
        living = world.living()
        kind = random.choices(
            ("join", "static", "leave", "crash", "return", "time", "commit", "zombie", "restart"),
            (6, 2, 3, 3, 2, 10, 8, 3, 1),
        )[0]
        if kind == "join" and len(living) < MEMBERS_MAX:
            world.start()
        elif kind == "static" and len(living) < MEMBERS_MAX:
            world.start(f"static{random.randint(0, 2)}")
        elif kind == "leave" and living:
            random.choice(living).leave()
        elif kind == "crash" and living:
            random.choice(living).alive = False
        elif kind == "return":
            self.revive()
        elif kind == "time":
            world.advance(random.choice((1, 500, 3_000, 9_999, 30_000)))
        elif kind == "commit" and living:
            self.commit(random.choice(living))
        elif kind == "zombie" and world.consumers:
            self.commit(random.choice(world.consumers))
        elif kind == "restart":
            world.restart()

    def revive(self) -> None:
        """A process that was stopped for a while goes on where it was."""
        dead = [each for each in self.world.consumers if not each.alive and each.member_id]
        if dead and len(self.world.living()) < MEMBERS_MAX:
            consumer = self.random.choice(dead)
            consumer.alive = True
            if consumer.waits_for is not None or consumer.assignment is None:
                consumer.waits_for = None
                consumer.join()
            else:
                consumer.heartbeat()

    def commit(self, consumer: ClassicConsumer) -> None:
        """Go on from what is committed; whoever is out of the generation must be refused."""
        for partition in sorted(consumer.assignment or ()):
            before = self.highest.get(partition, 0)
            code = consumer.commit(partition, before + self.random.randint(0, 5))
            if code is ErrorCode.NONE:
                owner = self.world.owners[consumer.generation, partition]
                assert consumer.member_id.startswith(owner), "a stranger could commit"
                self.highest[partition] = self.world.committed()[partition]

    def check(self, *, replay: bool = True) -> None:
        group = self.world.shard.groups.get(GROUP)
        assert self.world.committed() == self.highest, "a committed offset went back"
        if (
            replay
            and isinstance(group, ClassicGroup)
            and group.state in (State.STABLE, State.EMPTY)
        ):
            replayed = self.world.replayed()
            assert persistent(replayed) == persistent(self.world.shard)

    def settle(self) -> None:
        self.world.advance(SETTLE_MS)
        self.check()
        group = self.world.shard.groups.get(GROUP)
        if self.world.living():
            assert isinstance(group, ClassicGroup)
            assert group.state is State.STABLE
            self.world.assert_shared_evenly()
        elif group is not None:
            assert isinstance(group, ClassicGroup)
            assert group.state is State.EMPTY


@given(seed=st.integers(0, 2**32 - 1))
def test_every_life_of_a_group_ends_with_each_partition_owned_once(seed: int) -> None:
    life = Life(seed)
    life.live(STEPS)
    life.settle()


@given(seed=st.integers(0, 2**32 - 1), turns=st.integers(2, 5))
def test_a_group_settles_again_after_each_wave_of_changes(seed: int, turns: int) -> None:
    life = Life(seed)
    for _ in range(turns):
        life.live(20)
        life.settle()
