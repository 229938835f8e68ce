"""ListTransactions: the transactions this broker coordinates."""

from headrace.protocol.fields import array, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=66, versions=(0, 2), flexible_from=0)
class ListTransactionsRequest(Message):
    """The filters."""

    state_filters: list[str] = array(string())
    producer_id_filters: list[int] = array(int64())
    duration_filter: int = int64(since=1, default=-1)
    transactional_id_pattern: str | None = string(since=2, nullable=True, default=None)


class TransactionState(Struct):
    """One transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@message(api_key=66, versions=(0, 2), flexible_from=0)
class ListTransactionsResponse(Message):
    """The transactions that pass."""

    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    unknown_state_filters: list[str] = array(string())
    transaction_states: list[TransactionState] = array(TransactionState)
