"""The file `quorum-state`: both of its versions, and what is not one."""

import json
from uuid import UUID

import pytest

from headrace.core.ids import LeaderEpoch, NodeId
from headrace.metadata import quorum_state
from headrace.metadata.quorum_state import QuorumState, UnreadableQuorumState
from tests.simulation.disk import SimulatedFileSystem

STATE = QuorumState(LeaderEpoch(7), NodeId(3), NodeId(2), UUID(int=5))
VERSION_0 = (
    b'{"clusterId":"","leaderId":3,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,'
    b'"currentVoters":[{"voterId":1},{"voterId":3}],"data_version":0}'
)


def disk_with(contents: bytes) -> SimulatedFileSystem:
    disk = SimulatedFileSystem()
    disk.make_directory("/metadata")
    disk.write_file("/metadata/quorum-state", contents)
    return disk


def test_what_was_stored_is_found_again() -> None:
    disk = disk_with(b"")
    quorum_state.store(disk, "/metadata", STATE)
    assert quorum_state.load(disk, "/metadata") == STATE


def test_a_vote_names_the_directory_of_the_node_voted_for() -> None:
    assert json.loads(STATE.encode()) == {
        "leaderId": 3,
        "leaderEpoch": 7,
        "votedId": 2,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAABQ",
        "data_version": 1,
    }


def test_the_file_of_a_fixed_voter_set_is_read_too() -> None:
    assert quorum_state.load(disk_with(VERSION_0), "/metadata") == QuorumState(
        LeaderEpoch(3), NodeId(3)
    )


def test_a_node_that_never_took_part_has_no_file() -> None:
    disk = SimulatedFileSystem()
    disk.make_directory("/metadata")
    assert quorum_state.load(disk, "/metadata") is None


@pytest.mark.parametrize(
    "contents",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        VERSION_0.replace(b'"data_version":0', b'"data_version":2'),
        VERSION_0.replace(b',"data_version":0', b""),
        VERSION_0.replace(b'"leaderEpoch":3', b'"leaderEpoch":-1'),
        VERSION_0.replace(b'"leaderEpoch":3', b'"leaderEpoch":2147483647'),
        VERSION_0.replace(b'"leaderEpoch":3', b'"leaderEpoch":true'),
        VERSION_0.replace(b'"votedId":-1', b'"votedId":"x"'),
        STATE.encode().replace(b"AAAAAAAAAAAAAAAAAAAABQ", b"A"),
    ],
)
def test_an_unreadable_file_is_no_start_for_a_node_that_may_have_voted(contents: bytes) -> None:
    with pytest.raises(UnreadableQuorumState, match="may have voted") as refused:
        quorum_state.load(disk_with(contents), "/metadata")
    assert refused.value.hint
