"""A part of `__consumer_offsets` that was damaged on disk: its groups wait, all others go on."""

import asyncio
from pathlib import Path

import pytest

from headrace.coordinator import shards
from headrace.coordinator.internal_topic import partition_for
from headrace.core.errors import ErrorCode
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from headrace.protocol.messages.list_groups import ListGroupsRequest
from tests.support.four_partitions import PATIENCE_SECONDS, Client
from tests.support.group_wire import commit_request
from tests.support.nodes import running_node

GROUPS = [f"g{number}" for number in range(12)]
SHARDS = 5
COMMITTED = 0x5A5A
WAIT = ErrorCode.COORDINATOR_NOT_AVAILABLE


def damaged(data: bytes, what: str) -> bytes:
    if what == "an offset":
        return data.replace(COMMITTED.to_bytes(8, "big"), (1).to_bytes(8, "big"), 1)
    position = data.index(b"\0\1\0\2g") - 6  # in front of the first record's key
    return data[:position] + b"\x7f" * 4 + data[position + 4 :]


@pytest.mark.parametrize("what", ["an offset", "a length"])
async def test_groups_of_a_damaged_shard_are_told_to_wait_until_it_can_be_read_again(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RETRY_SECONDS", 0.05)
    async with (
        running_node(tmp_path, offsets_topic_num_partitions=str(SHARDS)) as node,
        Client(node) as client,
    ):
        await client.create()
        await client.ask(FindCoordinatorRequest(key="g"), 2)
        for group in GROUPS:
            answer = await client.ask(commit_request(group, "t", {0: COMMITTED}), 8)
            assert answer.topics[0].partitions[0].error_code == 0
    shard = partition_for(GROUPS[0], SHARDS)
    ill = {group for group in GROUPS if partition_for(group, SHARDS) == shard}
    path = tmp_path / f"{OFFSETS_TOPIC}-{shard}" / "00000000000000000000.log"
    sound = path.read_bytes()
    path.write_bytes(damaged(sound, what))
    async with (
        running_node(tmp_path, offsets_topic_num_partitions=str(SHARDS)) as node,
        Client(node) as client,
    ):
        for group in GROUPS:
            expected = (WAIT, -2) if group in ill else (0, COMMITTED)
            assert await client.committed(group) == expected
        listed = await client.ask(ListGroupsRequest(), 4)
        assert listed.error_code == ErrorCode.NONE
        assert {each.group_id for each in listed.groups} == set(GROUPS) - ill
        beat = HeartbeatRequest(group_id=GROUPS[0], generation_id=1, member_id="m")
        assert (await client.ask(beat, 3)).error_code == WAIT
        path.write_bytes(sound)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (await client.committed(GROUPS[0]))[0]:
                await asyncio.sleep(0.02)
        assert [await client.committed(group) for group in GROUPS] == [(0, COMMITTED)] * 12
