"""How the leader of a classic group divides partitions among the members.

`range` and `roundrobin` start from nothing each time and are used with eager rebalances, in
which everybody first gives up everything. `cooperative-sticky` moves as little as it can: a
partition that changes hands is withheld for one round, until its owner has given it up.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from headrace.core.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """One member as the leader sees it."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first and by name, so that a restart changes nothing for anybody."""
        return self.instance_id is None, self.instance_id or self.member_id


Assignments = dict[str, list[TopicPartition]]
Counts = Mapping[str, int]
Assign = Callable[[Counts, Sequence[JoinedMember]], Assignments]


def assign_range(counts: Counts, members: Sequence[JoinedMember]) -> Assignments:
    """Topic by topic, a stretch of consecutive partitions to each; the first get one more."""
    shares: Assignments = {member.member_id: [] for member in members}
    for topic in sorted(counts):
        readers = [each for each in sorted(members, key=_order) if topic in each.topics]
        numbers = iter(range(counts[topic]))
        for index, reader in enumerate(readers):
            more = index < counts[topic] % len(readers)
            width = counts[topic] // len(readers) + more
            shares[reader.member_id] += [TopicPartition(topic, n) for n in islice(numbers, width)]
    return shares


def assign_roundrobin(counts: Counts, members: Sequence[JoinedMember]) -> Assignments:
    """All partitions in order, dealt to the members in turn; one not interested is passed over."""
    shares: Assignments = {member.member_id: [] for member in members}
    ring = sorted(members, key=_order)
    turn = 0
    for partition in _partitions(counts):
        for step in range(len(ring)):
            member = ring[(turn + step) % len(ring)]
            if partition.topic in member.topics:
                shares[member.member_id].append(partition)
                turn += step + 1
                break
    return shares


def assign_cooperative_sticky(counts: Counts, members: Sequence[JoinedMember]) -> Assignments:
    """An even division that keeps owners, less what its new owner must still wait for."""
    shares = assign_sticky(counts, members)
    owners: dict[TopicPartition, set[str]] = {}
    for member in members:
        for partition in member.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    return {
        member_id: [each for each in share if owners.get(each, set()) <= {member_id}]
        for member_id, share in shares.items()
    }


def assign_sticky(counts: Counts, members: Sequence[JoinedMember]) -> Assignments:
    """As even as subscriptions allow, and as few moves as that takes."""
    ring = sorted(members, key=_order)
    kept = _still_owned(counts, ring)
    if len({member.topics for member in ring}) <= 1:
        return _assign_evenly(counts, ring, kept)
    return _balance(counts, ring, kept)


def _order(member: JoinedMember) -> tuple[bool, str]:
    return member.order


def _partitions(counts: Counts) -> list[TopicPartition]:
    return [TopicPartition(topic, n) for topic in sorted(counts) for n in range(counts[topic])]


def _still_owned(counts: Counts, members: Sequence[JoinedMember]) -> Assignments:
    """What each may keep: of two claims the younger generation's counts, of equal ones neither."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        for partition in set(member.owned):
            topic, number = partition
            if topic not in member.topics or number >= counts.get(topic, 0):
                continue
            generation, _ = claims.get(partition, (-2, None))
            if member.generation > generation:
                claims[partition] = (member.generation, member.member_id)
            elif member.generation == generation:
                claims[partition] = (generation, None)
    kept: Assignments = {member.member_id: [] for member in members}
    for partition in sorted(claims):
        owner = claims[partition][1]
        if owner is not None:
            kept[owner].append(partition)
    return kept


def _assign_evenly(
    counts: Counts, members: Sequence[JoinedMember], kept: Assignments
) -> Assignments:
    """Everybody wants the same: each gets the average, and some one more."""
    if not members:
        return {}
    topics = members[0].topics
    partitions = [each for each in _partitions(counts) if each.topic in topics]
    low, extra = divmod(len(partitions), len(members))
    shares: Assignments = {}
    # Those who own most get the larger shares, so that fewer partitions move.
    for member in sorted(members, key=lambda each: -len(kept[each.member_id])):
        quota = low
        if extra and len(kept[member.member_id]) > low:
            quota, extra = low + 1, extra - 1
        shares[member.member_id] = kept[member.member_id][:quota]
    taken = {partition for share in shares.values() for partition in share}
    free = iter([partition for partition in partitions if partition not in taken])
    for member in members:
        share = shares[member.member_id]
        share += islice(free, max(low - len(share), 0))
    for member, partition in zip(
        [each for each in members if len(shares[each.member_id]) == low], free, strict=False
    ):
        shares[member.member_id].append(partition)
    return {member.member_id: sorted(shares[member.member_id]) for member in members}


def _balance(counts: Counts, members: Sequence[JoinedMember], kept: Assignments) -> Assignments:
    """Subscriptions differ: give to the least loaded who wants it, then move while that evens."""
    shares = {member_id: set(share) for member_id, share in kept.items()}
    readers = {
        topic: [member.member_id for member in members if topic in member.topics]
        for topic in counts
    }
    taken = {partition for share in kept.values() for partition in share}
    free = [each for each in _partitions(counts) if each not in taken and readers[each.topic]]
    # The partitions with the fewest takers first: the others can still be fitted around them.
    for partition in sorted(free, key=lambda each: (len(readers[each.topic]), each)):
        taker = min(readers[partition.topic], key=lambda each: len(shares[each]))
        shares[taker].add(partition)
    while _move_one(shares, readers):
        pass
    return {member_id: sorted(share) for member_id, share in shares.items()}


def _move_one(shares: dict[str, set[TopicPartition]], readers: Mapping[str, Sequence[str]]) -> bool:
    """Move one partition to a member that is at least two behind its owner, if there is one.

    Each move lowers the sum of the squares of the loads, so moving comes to an end.
    """
    for giver in sorted(shares, key=lambda each: (-len(shares[each]), each)):
        load = len(shares[giver])
        least = {
            topic: min(readers[topic], key=lambda each: len(shares[each]))
            for topic in {partition.topic for partition in shares[giver]}
        }
        topic = min(least, key=lambda each: (len(shares[least[each]]), each), default=None)
        if topic is not None and len(shares[least[topic]]) <= load - 2:
            partition = max(each for each in shares[giver] if each.topic == topic)
            shares[giver].remove(partition)
            shares[least[topic]].add(partition)
            return True
    return False


ASSIGN: Mapping[str, Assign] = {
    "range": assign_range,
    "roundrobin": assign_roundrobin,
    "cooperative-sticky": assign_cooperative_sticky,
}
COOPERATIVE = frozenset({"cooperative-sticky"})
