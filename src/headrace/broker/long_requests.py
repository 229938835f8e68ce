"""Requests of many items: read and answered by a worker, so that others are served meanwhile.

Making the objects of a request, and the bytes of its answer, costs some microseconds for each
item: partitions, topics, groups, whatever its arrays hold. Of few items that is done at once. A
request of more is decoded in a worker, one at a time, and its answer encoded there; its
connection waits, as Kafka's do. Handlers still run on the event loop, so there is a greatest
number, and what announces more costs the client its connection.
"""

from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.broker.context import RequestContext
from headrace.core.files import Part
from headrace.protocol.frames import encode_response_parts
from headrace.protocol.message import Message

if TYPE_CHECKING:
    from headrace.broker.connection import Connection

# Some milliseconds to read them, serve them, and answer.
ITEMS_AT_ONCE: Final = 1_000
# Ten thousand topics with a partition each, and what is around them. Most handlers go through so
# many in 20 to 60 ms.
ITEMS_MAX: Final = 21_000


class LongRequestContext(RequestContext):
    """A request whose answer is encoded by a worker."""

    __slots__ = ()

    is_long = True

    def __init__(self, context: RequestContext, caller: "Connection") -> None:
        """`context` is that of the request before its length was known."""
        super().__init__(
            context.services,
            caller,
            context.header,
            context._slot,
            context._version,
            context._metrics,
            context.started,
            context.size,
        )

    def reply(self, response: Message | None) -> None:
        if response is None:
            super().reply(None)
        else:
            self.finish_in_task(self._encode(response))

    async def _encode(self, response: Message) -> None:
        encode = partial(encode_response_parts, response, self._version, self.header.correlation_id)
        parts: list[Part] = await self.services.record_work.in_worker(encode)
        self.connection.fill(self._slot, parts)
        self._metrics.count_request(self, response)


async def decode_in_worker(
    context: RequestContext, request_class: type[Message], frame: memoryview
) -> Message:
    """Raises `TooManyItems` for more than a handler can go through."""
    header = context.header
    decode = partial(
        request_class.decode_from, frame, header.api_version, header.body_position, ITEMS_MAX
    )
    request, _ = await context.services.record_work.in_worker(decode)
    return request
