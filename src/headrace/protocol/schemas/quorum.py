"""What the metadata quorum writes about itself: control records, snapshots' ends, its vote file."""

from uuid import UUID

from headrace.protocol.fields import (
    NULL_UUID,
    array,
    int16,
    int32,
    int64,
    string,
    struct,
    uint16,
    uuid,
)
from headrace.protocol.message import Message, Struct, message


class LeaderChangeVoter(Struct):
    """One voter."""

    voter_id: int = int32()
    voter_directory_id: UUID = uuid(since=1, default=NULL_UUID)


@message(versions=(0, 1), flexible_from=0)
class LeaderChangeMessage(Message):
    """A leader takes over; the first record of its epoch."""

    version: int = int16()
    leader_id: int = int32()
    voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)
    granting_voters: list[LeaderChangeVoter] = array(LeaderChangeVoter)


@message(versions=(0, 0), flexible_from=0)
class SnapshotHeaderRecord(Message):
    """First record of a snapshot."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()


@message(versions=(0, 0), flexible_from=0)
class SnapshotFooterRecord(Message):
    """Last record of a snapshot."""

    version: int = int16()


@message(versions=(0, 0), flexible_from=0)
class KRaftVersionRecord(Message):
    """The version of the quorum protocol in use."""

    version: int = int16()
    kraft_version: int = int16()


class VoterEndpoint(Struct):
    """Where the voter listens."""

    name: str = string()
    host: str = string()
    port: int = uint16()


class KRaftVersionFeature(Struct):
    """Range of quorum versions the voter supports."""

    min_supported_version: int = int16()
    max_supported_version: int = int16()


class Voter(Struct):
    """One voter, with all its incarnations kept apart by directory id."""

    voter_id: int = int32()
    voter_directory_id: UUID = uuid()
    endpoints: list[VoterEndpoint] = array(VoterEndpoint)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature)


@message(versions=(0, 0), flexible_from=0)
class VotersRecord(Message):
    """Who may vote (KIP-853)."""

    version: int = int16()
    voters: list[Voter] = array(Voter)


class QuorumStateVoter(Struct):
    """One voter of a fixed voter set."""

    voter_id: int = int32()


@message(versions=(0, 1), flexible_from=0)
class QuorumStateData(Message):
    """What a node keeps about elections, in the file quorum-state."""

    cluster_id: str = string(until=0, default="")
    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)
    voted_id: int = int32(default=-1)
    voted_directory_id: UUID = uuid(since=1, default=NULL_UUID)
    applied_offset: int = int64(until=0, default=0)
    current_voters: list[QuorumStateVoter] | None = array(
        QuorumStateVoter, until=0, nullable=True, default=()
    )
