"""How a producer gets its id."""

from headrace.client.core.errors import raise_for
from headrace.client.core.operations import ClientOperation, Session, retrying, send_to_any
from headrace.client.core.partition_queue import ProducerIdentity
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_NO_TRANSACTION_TIMEOUT_MS = 2147483647


def request_producer_identity(session: Session) -> ClientOperation[ProducerIdentity]:
    """Ask any broker for an id of our own, with epoch 0."""

    def attempt() -> ClientOperation[ProducerIdentity]:
        request = InitProducerIdRequest(transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
        response = yield from send_to_any(session, request, InitProducerIdResponse)
        raise_for(response.error_code, None, "InitProducerId")
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    return (yield from retrying(session, attempt))
