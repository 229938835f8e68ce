"""From the frames of one connection to requests, by the fast path where there is one."""

from headrace.broker.connection import Connection
from headrace.broker.processor import RequestProcessor
from headrace.broker.produce_fast_path import ProduceFastPath, observe
from headrace.protocol.frames import decode_request_header
from headrace.protocol.messages.produce import ProduceRequest
from headrace.replication.partition import Partition


class FrameDispatcher:
    """What becomes of the frames of one connection."""

    __slots__ = (
        "_connection",
        "_now",
        "_processor",
        "produce_fast_path",
        "produced_last",
        "start",
    )

    def __init__(self, processor: RequestProcessor, connection: Connection) -> None:
        self._processor = processor
        # What a request has to do later is run there; a node that stops waits for it.
        self.start = processor.start
        self._connection = connection
        self._now = processor.services.request_metrics.now
        # Where the last produce went, and its fast path once it has been there twice.
        self.produced_last: Partition | None = None
        self.produce_fast_path: ProduceFastPath | None = None

    def handle(self, frame: memoryview) -> None:
        """Start one request. Raises what must cost the client its connection."""
        connection = self._connection
        fast_path = self.produce_fast_path
        if fast_path is not None and fast_path.serve(connection, frame):
            return
        started = self._now()
        header = decode_request_header(frame)
        served = self._processor.receive(
            connection.origin, header, frame, connection.reserve_slot(), started
        )
        if served is None:
            return
        context, request, end = served
        if end == len(frame) and isinstance(request, ProduceRequest):
            observe(self._processor.services, self, frame, header, request, context.appended_to)
