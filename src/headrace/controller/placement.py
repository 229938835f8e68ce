"""Which brokers hold the replicas of new partitions."""

from collections.abc import Iterator, Sequence
from uuid import UUID

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NodeId
from headrace.core.runtime import Randomness
from headrace.metadata.image import UNASSIGNED_DIRECTORY, Image, PartitionRegistration


def place(
    image: Image, first_index: int, count: int, replication_factor: int, randomness: Randomness
) -> Iterator[PartitionRegistration]:
    """Registrations for `count` new partitions: leaders in turn from a random start.

    Active brokers come first in every replica list, so a partition never starts without a
    leader while another broker could have led it.
    """
    active = sorted(id for id, broker in image.brokers.items() if broker.active)
    idle = sorted(image.brokers.keys() - set(active))
    if not active:
        raise _impossible(replication_factor, "All brokers are currently fenced.")
    if replication_factor > len(image.brokers):
        raise _impossible(
            replication_factor,
            f"The target replication factor of {replication_factor} cannot be reached because "
            f"only {len(image.brokers)} broker(s) are registered or some brokers have all their "
            "log directories cordoned.",
        )
    start = int(randomness.random() * len(active)) + first_index
    for index in range(start, start + count):
        turn = index % len(active)
        order = (*active[turn:], *active[:turn], *idle)
        yield register(image, order[:replication_factor])


def assign(
    image: Image, index: int, replicas: Sequence[int], replication_factor: int | None
) -> PartitionRegistration:
    """Registration of one new partition whose replicas the request names."""
    problem = _assignment_problem(image, replicas, replication_factor)
    if problem is not None:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment {problem}"
        )
    if not any(image.brokers[id].active for id in replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment for partition {index} "
            "are fenced or in controlled shutdown.",
        )
    return register(image, replicas)


def register(image: Image, replicas: Sequence[int]) -> PartitionRegistration:
    """A fresh partition on `replicas`: the first active one leads, all active ones are in sync."""
    isr = tuple(id for id in replicas if image.brokers[id].active)
    return PartitionRegistration(
        leader=NodeId(isr[0]),
        leader_epoch=0,
        partition_epoch=0,
        replicas=tuple(replicas),
        isr=isr,
        directories=tuple(_directory(image, id) for id in replicas),
    )


def _directory(image: Image, broker_id: int) -> UUID:
    directories = image.brokers[broker_id].directories
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY


def _assignment_problem(
    image: Image, replicas: Sequence[int], replication_factor: int | None
) -> str | None:
    if not replicas:
        return "includes an empty replica list."
    previous = None
    for id in sorted(replicas):
        if id not in image.brokers:
            return f"includes broker {id}, but no such broker is registered."
        if id == previous:
            return f"includes the broker {id} more than once."
        previous = id
    if replication_factor is not None and len(replicas) != replication_factor:
        return (
            f"includes a partition with {len(replicas)} replica(s), but this is not consistent "
            f"with previous partitions, which have {replication_factor} replica(s)."
        )
    return None


def _impossible(replication_factor: int, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Unable to replicate the partition {replication_factor} time(s): {reason}",
    )
