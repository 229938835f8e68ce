"""ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.differential.peer import Peer
from tests.differential.scripts import fill, script, versions
from tests.support.batches import FIXED_TIMESTAMP_MS, Batch, values

_LATEST, _EARLIEST, _MAX_TIMESTAMP, _EARLIEST_LOCAL, _LATEST_TIERED, _PENDING = range(-1, -7, -1)


def _list_offsets(
    topic: str, partition: int, timestamp: int, isolation: int = 0, epoch: int = -1
) -> ListOffsetsRequest:
    asked = ListOffsetsPartition(
        partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp
    )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=[asked])],
        timeout_ms=5_000,
    )


@script
def list_offsets_by_every_timestamp(peer: Peer) -> None:
    topic_id = peer.create("offsets")
    peer.create("offsets-empty")
    steps = (Batch(values(4), base_timestamp_ms=FIXED_TIMESTAMP_MS + 1000 * n) for n in range(3))
    # The newest timestamp lies in the middle, so that "newest" and "last" are told apart.
    newest = Batch(values(2), base_timestamp_ms=FIXED_TIMESTAMP_MS + 50_000, timestamp_step_ms=7)
    batches = [*steps, newest, Batch(values(3), base_timestamp_ms=FIXED_TIMESTAMP_MS + 3000)]
    fill(
        peer,
        "offsets",
        topic_id,
        0,
        *(batch.but(timestamp_step_ms=7).encode() for batch in batches),
    )
    timestamps = {
        "latest": _LATEST,
        "earliest": _EARLIEST,
        "newest timestamp": _MAX_TIMESTAMP,
        "earliest local": _EARLIEST_LOCAL,
        "latest tiered": _LATEST_TIERED,
        "earliest pending upload": _PENDING,
        "no such special timestamp": -9,
        "the first record": FIXED_TIMESTAMP_MS,
        "inside a batch": FIXED_TIMESTAMP_MS + 10,
        "between batches": FIXED_TIMESTAMP_MS + 500,
        "in the newest": FIXED_TIMESTAMP_MS + 50_003,
        "zero": 0,
        "in the future": FIXED_TIMESTAMP_MS + 99_000_000,
    }
    for version in versions(ApiKey.LIST_OFFSETS):
        for label, timestamp in timestamps.items():
            for isolation in (0, 1) if version >= 2 else (0,):
                name = f"{label}, {'committed' if isolation else 'uncommitted'}"
                peer.ask(_list_offsets("offsets", 0, timestamp, isolation), version, name)
            request = _list_offsets("offsets-empty", 0, timestamp)
            peer.ask(request, version, f"{label}, empty log")


@script
def list_offsets_of_nothing(peer: Peer) -> None:
    peer.create("offsets-where")
    for version in versions(ApiKey.LIST_OFFSETS):
        peer.ask(_list_offsets("no-such-topic", 0, -1), version, "unknown topic")
        peer.ask(_list_offsets("offsets-where", 4, -1), version, "unknown partition")
        doubled = _list_offsets("offsets-where", 0, -1)
        doubled.topics[0].partitions = doubled.topics[0].partitions * 2
        peer.ask(doubled, version, "a partition twice")
        if version >= 4:
            for label, epoch in (("current", 0), ("to come", 5)):
                request = _list_offsets("offsets-where", 0, -1, epoch=epoch)
                peer.ask(request, version, f"epoch {label}")


@script
def offset_for_leader_epoch(peer: Peer) -> None:
    topic_id = peer.create("epochs")
    peer.create("epochs-empty")
    fill(peer, "epochs", topic_id, 0, Batch(values(4)).encode())
    for version in versions(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        for label, topic, partition, current, asked in (
            ("epoch of the records", "epochs", 0, -1, 0),
            ("with the current epoch", "epochs", 0, 0, 0),
            ("empty log", "epochs-empty", 0, -1, 0),
            ("an epoch to come", "epochs", 0, -1, 3),
            ("no epoch", "epochs", 0, -1, -1),
            ("current epoch to come", "epochs", 0, 9, 0),
            ("unknown partition", "epochs", 6, -1, 0),
            ("unknown topic", "no-such-topic", 0, -1, 0),
        ):
            one = OffsetForLeaderPartition(
                partition=partition, current_leader_epoch=current, leader_epoch=asked
            )
            request = OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[one])]
            )
            peer.ask(request, version, label)
