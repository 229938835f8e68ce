"""What is known of records after a produce: written, not written, or nobody can say.

Every producer here asks this table, those that gather (`accumulator`) as well as those that send
one call's batches (the gateway's); none keeps a list of codes of its own.

- Refusals by a check before the append mean **not written**. Sent again they cannot be there
  twice, whoever sends them.
- A broken connection, a timeout, a failing disk and whatever a broker may say after the append
  mean **unknown**. Only who has a producer id and sends the same sequence may try again without
  the risk of a second copy, and the sequence is used up: other records under it would be taken for
  these, and dropped.
- A leader that lost its partition after the append, before the other replicas had the records,
  answers with the same codes as one that never took them, but names the offset that they got. So
  an error **with an offset is unknown**.
- `DUPLICATE_SEQUENCE_NUMBER` means **written**: by us, since no sequence is given to two batches.
  It comes without an offset, and here the two users differ. A producer has sent the batch itself a
  moment ago, and its caller learns that it was written, offset unknown. Under an idempotency key
  the gateway repeats what may have been written hours ago, for a caller who wants the offsets of
  then; so its answer is an error that says both (`DuplicateWithoutOffset`).
- `OUT_OF_ORDER_SEQUENCE_NUMBER` means **not written** by this attempt: the leader has not the
  batch before it.
"""

from enum import Enum, auto
from typing import Final

from headrace.core.errors import ApiError, ErrorCode, HeadraceError, UnencodableMessage
from headrace.network.errors import ConnectFailed, UnsupportedApi


class ProduceOutcome(Enum):
    WRITTEN = auto()
    NOT_WRITTEN = auto()
    UNKNOWN = auto()


_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
_REFUSED: Final = frozenset(
    {
        # There is no such partition here, or not under this leader.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        # The records themselves.
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        # The request, or who sent it.
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.ILLEGAL_SASL_STATE,
        # The producer's id, epoch, sequence or transaction.
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def response_outcome(code: int, base_offset: int = -1) -> ProduceOutcome:
    """What a broker's response for one partition says of the batch."""
    if code in _WRITTEN:
        return ProduceOutcome.WRITTEN
    if code in _REFUSED and base_offset < 0:
        return ProduceOutcome.NOT_WRITTEN
    return ProduceOutcome.UNKNOWN


def failure_outcome(error: HeadraceError) -> ProduceOutcome:
    """What the failure of a whole request says of each of its batches."""
    if isinstance(error, (ConnectFailed, UnsupportedApi, UnencodableMessage)):
        return ProduceOutcome.NOT_WRITTEN  # the request was never sent
    if isinstance(error, ApiError) and error.code is not ErrorCode.NONE:
        return response_outcome(error.code)
    return ProduceOutcome.UNKNOWN
