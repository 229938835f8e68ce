"""WriteTxnMarkers: a coordinator writes to partitions how transactions ended."""

from headrace.protocol.fields import array, boolean, int8, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


class WritableTxnMarkerTopic(Struct):
    """Partitions of one topic that need the marker."""

    name: str = string()
    partition_indexes: list[int] = array(int32())


class WritableTxnMarker(Struct):
    """The end of one transaction."""

    producer_id: int = int64()
    producer_epoch: int = int16()
    transaction_result: bool = boolean()
    topics: list[WritableTxnMarkerTopic] = array(WritableTxnMarkerTopic)
    coordinator_epoch: int = int32()
    transaction_version: int = int8(since=2, default=0)


@message(api_key=27, versions=(1, 2), flexible_from=1)
class WriteTxnMarkersRequest(Message):
    """Markers to write."""

    markers: list[WritableTxnMarker] = array(WritableTxnMarker)


class WritableTxnMarkerPartitionResult(Struct):
    """The outcome for one partition."""

    partition_index: int = int32()
    error_code: int = int16(default=0)


class WritableTxnMarkerTopicResult(Struct):
    """The outcome for one topic."""

    name: str = string()
    partitions: list[WritableTxnMarkerPartitionResult] = array(WritableTxnMarkerPartitionResult)


class WritableTxnMarkerResult(Struct):
    """The outcome for one producer."""

    producer_id: int = int64()
    topics: list[WritableTxnMarkerTopicResult] = array(WritableTxnMarkerTopicResult)


@message(api_key=27, versions=(1, 2), flexible_from=1)
class WriteTxnMarkersResponse(Message):
    """The outcome, per partition."""

    markers: list[WritableTxnMarkerResult] = array(WritableTxnMarkerResult)
