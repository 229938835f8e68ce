"""How a producer gets its id."""

from headrace.client.core.failures import raise_for
from headrace.client.core.flows import Flow, Session, ask_any, retrying
from headrace.client.core.lane import ProducerIdentity
from headrace.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_NO_TRANSACTION_TIMEOUT_MS = 2147483647


def new_identity(session: Session) -> Flow[ProducerIdentity]:
    """Ask any broker for an id of our own, with epoch 0."""

    def attempt() -> Flow[ProducerIdentity]:
        request = InitProducerIdRequest(transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
        response = yield from ask_any(session, request, InitProducerIdResponse)
        raise_for(response.error_code, None, "InitProducerId")
        return ProducerIdentity(response.producer_id, response.producer_epoch)

    return (yield from retrying(session, attempt))
