"""What the HTTP API tells about itself in /metrics."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from typing import Final

from headrace.core.metrics import Family, Metric, Sample

REQUESTS: Final = Metric(
    "headrace_http_requests_total",
    "counter",
    "Requests answered by the HTTP API; streams are counted when they begin.",
    ("method", "path", "status"),
)
STREAMS: Final = Metric("headrace_http_streams", "gauge", "Open event streams.")
INSTANCES: Final = Metric("headrace_http_consumer_instances", "gauge", "Consumer instances.")


class RequestCounts:
    """Answers by method, declared path and status."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def add(self, method: str, path: str, status: int) -> None:
        self._counts[method, path, status] += 1

    def samples(self) -> Iterator[Sample]:
        for (method, path, status), count in sorted(self._counts.items()):
            yield (method, path, str(status)), count


class HttpMetrics:
    """A source for `metrics.render`."""

    def __init__(self, request_counts: RequestCounts, streams: Sized, instances: Sized) -> None:
        self._request_counts = request_counts
        self._streams = streams
        self._instances = instances

    def collect(self) -> Iterable[Family]:
        return (
            Family(REQUESTS, self._request_counts.samples()),
            STREAMS.of(((), len(self._streams))),
            INSTANCES.of(((), len(self._instances))),
        )
