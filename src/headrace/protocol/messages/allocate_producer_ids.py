"""AllocateProducerIds: a broker asks the controller for a block of producer ids (KIP-730)."""

from headrace.protocol.fields import int16, int32, int64
from headrace.protocol.message import Message, message


@message(api_key=67, versions=(0, 0), flexible_from=0)
class AllocateProducerIdsRequest(Message):
    """The broker that will hand them out."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


@message(api_key=67, versions=(0, 0), flexible_from=0)
class AllocateProducerIdsResponse(Message):
    """The first id and how many there are."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id_start: int = int64()
    producer_id_len: int = int32()
