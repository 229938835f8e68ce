"""Requests of many items: read and answered by a worker, so that others are served meanwhile.

Making the objects of a request, and the bytes of its answer, costs some microseconds for each
item: partitions, topics, groups, whatever its arrays hold. Of few items that is done at once. A
request of more is decoded in a worker, one at a time, and its answer encoded there; its
connection waits, as Kafka's do. Handlers still run on the event loop, so there is a greatest
number, and what announces more costs the client its connection.
"""

from functools import partial
from typing import Final

from headrace.broker.request import RequestContext
from headrace.core.errors import TooManyItems
from headrace.protocol.message import Message
from headrace.protocol.messages.fetch import FetchRequest
from headrace.protocol.messages.produce import ProduceRequest

# Some milliseconds to read them, serve them, and answer.
ITEMS_AT_ONCE: Final = 1_000
# Ten thousand topics with a partition each, and what is around them. Most handlers go through so
# many in 20 to 60 ms.
ITEMS_MAX: Final = 21_000


def is_long(request: Message) -> bool:
    """Whether a request that need not be decoded has many items; `TooManyItems` for too many."""
    items = 0
    if isinstance(request, ProduceRequest):
        for topic in request.topic_data:
            items += 1 + len(topic.partition_data)
    elif isinstance(request, FetchRequest):
        for fetched in request.topics:
            items += 1 + len(fetched.partitions)
    if items > ITEMS_MAX:
        raise TooManyItems(f"{items} topics and partitions are too many for one request")
    return items > ITEMS_AT_ONCE


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
