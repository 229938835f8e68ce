"""Progress for Prometheus: counted as batches end, told at `/metrics` of a small HTTP server."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import Final

from headrace.core.errors import InvalidConfig
from headrace.core.listeners import parse_listener_address
from headrace.core.metrics import Family, Histogram, Kind, Metric, Value
from headrace.spark.progress.late import LateRows
from headrace.spark.progress.measures import Lag, Progress

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# From the shortest batch there is to one that has the whole past of a topic to read.
BATCH_SECONDS_BOUNDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class _Counts:
    """What has been counted of one query since this process began."""

    def __init__(self) -> None:
        self.batches = 0
        self.rows = 0
        self.failures = 0
        self.late = LateRows()
        self.seconds = Histogram(BATCH_SECONDS_BOUNDS)
        self.is_running = False
        self.last: Progress | None = None


def _metric(name: str, kind: Kind, told: str, *more_labels: str) -> Metric:
    return Metric(f"headrace_pipeline_{name}", kind, told, ("query", *more_labels))


OF_QUERY: Final[dict[Metric, Callable[[_Counts], Value]]] = {
    _metric("running", "gauge", "1 while the query runs, else 0."): (
        lambda counts: int(counts.is_running)
    ),
    _metric("failures_total", "counter", "Times the query ended by an error."): (
        lambda counts: counts.failures
    ),
    _metric("batches_total", "counter", "Batches finished."): lambda counts: counts.batches,
    _metric("rows_total", "counter", "Rows read by them."): lambda counts: counts.rows,
    _metric(
        "late_rows_total", "counter", "Rows left out for they came too late, by a watermark."
    ): lambda counts: counts.late.late,
    _metric(
        "partly_late_rows_total",
        "counter",
        "Rows that were late for some of their sliding windows only.",
    ): lambda counts: counts.late.partly,
    _metric(
        "late_rows_exact", "gauge", "1 if late rows are counted one by one, 0 if at least so many."
    ): lambda counts: int(counts.late.is_exact),
    _metric("batch_seconds", "histogram", "From trigger to end of batch."): (
        lambda counts: counts.seconds
    ),
}
OF_LAST_BATCH: Final[dict[Metric, Callable[[Progress], float | None]]] = {
    _metric("last_batch", "gauge", "Number of the last batch."): lambda last: last.batch,
    _metric(
        "last_batch_timestamp_seconds", "gauge", "When it ended, in seconds since 1970."
    ): lambda last: last.at,
    _metric("last_batch_rows", "gauge", "Rows it read."): lambda last: last.rows,
    _metric("last_batch_seconds", "gauge", "How long it took."): (
        lambda last: last.batch_ms / 1000
    ),
    _metric("state_rows", "gauge", "Rows kept as state."): lambda last: last.state_rows,
    _metric("state_bytes", "gauge", "Memory that state takes."): lambda last: last.state_bytes,
    _metric(
        "watermark_timestamp_seconds",
        "gauge",
        "Event time before which rows are late, in seconds since 1970.",
    ): lambda last: last.watermark,
}
OF_TOPIC: Final[dict[Metric, Callable[[Progress], Lag]]] = {
    _metric(
        "lag_records",
        "gauge",
        "Records the last batch left for later, as topics were when it was planned.",
        "topic",
    ): lambda last: last.lag,
    _metric(
        "lag_before_records", "gauge", "Records that waited when it was planned.", "topic"
    ): lambda last: last.lag_before,
}


class Counters:
    """Metrics of all queries; told from any thread, asked from any other."""

    def __init__(self) -> None:
        self._counts: dict[str, _Counts] = {}
        self._lock = threading.Lock()

    def started(self, query: str) -> None:
        with self._lock:
            self._of(query).is_running = True

    def ended(self, query: str, *, failed: bool) -> None:
        with self._lock:
            counts = self._of(query)
            counts.is_running = False
            counts.failures += failed

    def count(self, progress: Progress) -> None:
        with self._lock:
            counts = self._of(progress.query)
            counts.is_running = True
            counts.batches += 1
            counts.rows += progress.rows
            counts.late.add(progress)
            counts.seconds.observe(progress.batch_ms / 1000)
            counts.last = progress

    def _of(self, query: str) -> _Counts:
        return self._counts.setdefault(query, _Counts())

    def text(self) -> str:
        """Everything in the text format of Prometheus."""
        with self._lock:
            return "".join(_rendered(self._families()))

    def _families(self) -> Iterator[Family]:
        found = sorted(self._counts.items())
        last = [counts.last for _, counts in found if counts.last is not None]
        for metric, count_of in OF_QUERY.items():
            yield metric.each([((query,), count_of(counts)) for query, counts in found])
        for metric, value_of in OF_LAST_BATCH.items():
            values = [((each.query,), value_of(each)) for each in last]
            yield metric.each([(labels, value) for labels, value in values if value is not None])
        for metric, lag_of in OF_TOPIC.items():
            yield metric.each(
                [((each.query, topic), lag) for each in last for topic, lag in lag_of(each).items()]
            )


def _rendered(families: Iterable[Family]) -> Iterator[str]:
    for metric, samples in families:
        yield f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"
        for values, value in samples:
            labels = ",".join(
                f'{name}="{_escape(text)}"'
                for name, text in zip(metric.labels, values, strict=True)
            )
            if isinstance(value, Histogram):
                yield from _histogram(metric.name, labels, value)
            else:
                yield f"{metric.name}{{{labels}}} {value}\n"


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    below = 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        below += count
        yield f'{name}_bucket{{{labels},le="{bound}"}} {below}\n'
    yield f"{name}_sum{{{labels}}} {histogram.total}\n{name}_count{{{labels}}} {below}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Server(ThreadingTCPServer):
    # Not the standard library's HTTPServer, which asks DNS for the name of its own address.
    allow_reuse_address = True
    daemon_threads = True


class _Server6(_Server):
    address_family = socket.AF_INET6


class MetricsServer:
    """Answers `GET /metrics` on threads of its own until it is closed."""

    def __init__(self, address: str, counters: Counters) -> None:
        host, port = _bind_address(address)
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = kind((host, port), _handler(counters))
        except OSError as error:
            raise InvalidConfig(
                f"metrics: cannot listen on {_joined(host, port)}: {error.strerror or error}"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="pipeline-metrics", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self._server.server_address[:2]
        return _joined(str(host), port)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _bind_address(address: str) -> tuple[str, int]:
    """Host and port; a port alone means this machine only."""
    text = address.strip().removeprefix(":")
    parsed = parse_listener_address("metrics", f"127.0.0.1:{text}" if text.isdigit() else text)
    if parsed is None:
        raise InvalidConfig("metrics: expected HOST:PORT; leave it out for no metrics")
    return parsed


def _handler(counters: Counters) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version = "headrace"
        sys_version = ""
        timeout = 10

        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "the metrics are at /metrics")
                return
            body = counters.text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """A scrape is nothing to tell in the terminal."""

    return Handler
