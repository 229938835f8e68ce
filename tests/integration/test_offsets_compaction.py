"""`__consumer_offsets` is compacted while groups commit, and still says what it said before."""

from headrace.client import Client, NewTopic
from headrace.core.errors import ErrorCode
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.protocol.messages.offset_commit import OffsetCommitResponse
from headrace.testing import Broker
from tests.support.config_effects import BUSY, alter, eventually, stored_keys
from tests.support.group_wire import GroupWire, commit_request

SETTINGS = {
    **BUSY,
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
EAGER = {
    "internal.segment.bytes": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
    "file.delete.delay.ms": "0",
}
COMMITS = 60


def commit(wire: GroupWire, group: str, offset: int) -> None:
    answer = wire.ask(commit_request(group, "t", {0: offset}), 9, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_compaction_keeps_the_last_commit_and_forgets_deleted_groups() -> None:
    with Broker(settings=SETTINGS) as broker:
        with Client(broker.bootstrap_servers) as client:
            client.admin.create_topics([NewTopic("t", 1)])
        wire = GroupWire(broker.port)
        wire.find("kept")
        alter(broker, OFFSETS_TOPIC, EAGER)
        member = wire.member("kept with a member")
        member.join()
        member.sync({member.member_id: b"share"})
        for number in range(COMMITS):
            commit(wire, "kept", number)
            commit(wire, "deleted", number)
        deleted = wire.ask(DeleteGroupsRequest(groups_names=["deleted"]), 2, DeleteGroupsResponse)
        assert deleted.results[0].error_code == ErrorCode.NONE

        def stored(group: str) -> int:
            # More commits roll the segment, so that all before can be compacted.
            commit(wire, "other", 1)
            return sum(group.encode() in (key or b"") for key in stored_keys(broker, OFFSETS_TOPIC))

        eventually(lambda: stored("deleted") == 0, "no trace of the deleted group")
        eventually(lambda: stored("kept") <= 4, "one record per key, and perhaps one being written")
        broker.kill()
        broker.start()
        assert wire_says(broker, "kept") == COMMITS - 1
        assert wire_says(broker, "deleted") == -1
        again = GroupWire(broker.port)
        again.find("kept with a member")
        member.connection = again.connect()
        assert member.heartbeat() == ErrorCode.NONE
        member.begin_sync()
        assert member.end_sync().assignment == b"share"
        wire.close()
        again.close()


def wire_says(broker: Broker, group: str) -> int:
    wire = GroupWire(broker.port)
    try:
        wire.find(group)
        return wire.committed(group, "t")
    finally:
        wire.close()
