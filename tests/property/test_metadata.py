"""Cluster metadata: any script of commands, then a restart, gives the same image."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.controller.commands import (
    AllocateProducerIds,
    AlterConfigOp,
    AlterConfigs,
    BumpLeaderEpochs,
    ConfigsToAlter,
    ConfigsToReplace,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    NewPartitions,
    RegisterBroker,
    TopicToCreate,
    TopicToDelete,
    UnfenceBroker,
)
from headrace.core.errors import ApiError
from headrace.core.ids import NodeId
from headrace.machine.interface import Command
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.records import MetadataRecord, decode_record, encode_record
from headrace.metadata.snapshots import snapshot_records
from tests.simulation.disk import SimulatedFileSystem
from tests.simulation.inodes import Fixed
from tests.support.metadata import ENDPOINTS, MetadataNode, cluster, machine

Script = list[Command[Any]]

names = st.sampled_from(["a", "b", "c", "a.b", "a_b", "c" * 249, ".."])
nodes = st.sampled_from([NodeId(0), NodeId(1), NodeId(2)])
keys = st.sampled_from(["retention.ms", "cleanup.policy", "flush.ms", "nonsense"])
broker_keys = st.sampled_from(["log.retention.ms", "num.partitions", "nonsense"])
values = st.sampled_from(["1", "60000", "compact", "delete,compact", "", "x"])
good_pairs = st.sampled_from(
    [("retention.ms", "9"), ("cleanup.policy", "compact"), ("flush.ms", "7")]
)
pairs = st.lists(good_pairs, max_size=2).map(tuple) | st.lists(
    st.tuples(keys, values), max_size=3
).map(tuple)
assignments = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=3).map(tuple)), max_size=3
).map(tuple)
new_topics = st.one_of(
    st.builds(TopicToCreate, names, st.integers(1, 3), st.just(1), configs=pairs),
    st.builds(TopicToCreate, names, st.integers(-2, 5), st.integers(-1, 3), configs=pairs),
    st.builds(TopicToCreate, names, assignments=assignments),
)
operations = st.builds(AlterConfigOp, keys, st.integers(0, 4), st.none() | values)
resources = st.one_of(
    st.tuples(st.just(2), names), st.tuples(st.just(4), st.sampled_from(["", "0"]))
)


def several(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, min_size=1, max_size=3).map(tuple)


alterations = st.builds(
    lambda resource, given: ConfigsToAlter(resource[0], resource[1], given),
    resources,
    st.lists(operations | st.builds(AlterConfigOp, broker_keys, st.just(0), values)).map(tuple),
)
replacements = st.builds(
    lambda resource, given: ConfigsToReplace(resource[0], resource[1], given), resources, pairs
)
commands: st.SearchStrategy[Command[Any]] = st.one_of(
    st.builds(CreateTopics, several(new_topics), st.booleans()),
    st.builds(DeleteTopics, several(st.builds(TopicToDelete, names))),
    st.builds(CreatePartitions, several(st.builds(NewPartitions, names, st.integers(0, 8)))),
    st.builds(IncrementalAlterConfigs, several(alterations)),
    st.builds(AlterConfigs, several(replacements)),
    st.builds(RegisterBroker, nodes, st.uuids(version=4), st.just(ENDPOINTS)),
    st.builds(UnfenceBroker, nodes),
    st.builds(BumpLeaderEpochs, nodes),
    st.builds(AllocateProducerIds, nodes),
)
scripts = st.lists(commands, max_size=25)


@given(scripts)
def test_the_same_records_through_bytes_give_the_same_image(script: Script) -> None:
    leader = follower = cluster(0)
    steps = machine()
    for command in script:
        try:
            decision = steps.decide(leader, command)
        except ApiError:
            continue
        leader = steps.apply(leader, decision.records)
        copied = [decode_record(encode_record(record)) for record in decision.records]
        follower = steps.apply(follower, copied)
    assert follower == leader


@given(scripts, st.integers(1, 25))
def test_the_delta_of_the_records_is_the_one_between_the_images(script: Script, run: int) -> None:
    """However many commands there are between the two images."""
    old = new = cluster(0, 1)
    steps, records = machine(), list[MetadataRecord]()
    for number, command in enumerate(script, 1):
        try:
            decision = steps.decide(new, command)
        except ApiError:
            continue
        new = steps.apply(new, decision.records)
        records += decision.records
        if number % run == 0:
            assert Delta.of_records(records, old, new) == Delta.between(old, new)
            old, records = new, []
    assert Delta.of_records(records, old, new) == Delta.between(old, new)


@given(scripts)
def test_the_records_of_a_snapshot_give_the_same_image(script: Script) -> None:
    image, steps = cluster(0), machine()
    for command in script:
        try:
            image = steps.apply(image, steps.decide(image, command).records)
        except ApiError:
            continue
    copied = [decode_record(encode_record(record)) for record in snapshot_records(image)]
    rebuilt = steps.apply(Image(image.cluster_id), copied)
    assert _without_offset(rebuilt) == _without_offset(image)


@given(scripts, st.sampled_from([1, 5, 1_000_000]), st.sampled_from(["stop", "kill", "power"]))
@settings(max_examples=60, deadline=None)
def test_a_restart_rebuilds_the_image_from_disk(
    script: Script, snapshot_records_min: int, end: str
) -> None:
    asyncio.run(_run_and_restart(script, snapshot_records_min, end))


async def _run_and_restart(script: Script, snapshot_records_min: int, end: str) -> None:
    node = MetadataNode(SimulatedFileSystem(), snapshot_records_min=snapshot_records_min)
    await node.join()
    half = len(script) // 2
    await asyncio.gather(
        *(node.controller.submit(command) for command in script[:half]), return_exceptions=True
    )
    for command in script[half:]:
        await asyncio.gather(node.controller.submit(command), return_exceptions=True)
    image = node.image
    if end == "stop":
        await node.stop()
        disk = node.disk.after_kill()
    else:
        node.controller.kill()
        power_cut = Fixed(names=False, contents=False)
        disk = node.disk.after_kill() if end == "kill" else node.disk.after_power_cut(power_cut)
    again = MetadataNode(disk, seed=2)
    assert again.load() == image


def _without_offset(image: Image) -> dict[str, Any]:
    fields = {name: getattr(image, name) for name in Image.__slots__}
    del fields["offset"]
    return fields
