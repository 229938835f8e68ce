"""How long requests take and how they end, per API; slow ones, or all of them, become log lines.

A request is measured from the moment its frame is at hand to its answer, without the time it
waited because it asked to (a long poll, a rebalance that needs other members). With the level
DEBUG on this module's logger each request leaves a line, by which it can be followed by its
correlation id; nothing of what it carries is ever in it. With the level off not even that is
checked: the bound above which a request is looked at serves for both.
"""

import logging
from bisect import bisect_left
from collections.abc import Callable, Iterator
from math import inf
from typing import Final, Protocol

from headrace.broker.response_errors import CountErrors, errors_counter
from headrace.core.metrics import SECONDS_BOUNDS, Histogram
from headrace.protocol.api_keys import APIS
from headrace.protocol.frames import RequestHeader
from headrace.protocol.message import Message
from headrace.security.principal import Principal

logger = logging.getLogger(__name__)

# A broker in trouble must not drown its own log: further lines of the second are only counted.
SLOW_LINES_PER_SECOND: Final = 10


class RequestSender(Protocol):
    """Who asks, as a line about a request names it."""

    @property
    def principal(self) -> Principal: ...

    @property
    def client_host(self) -> str: ...


class RequestFacts(Protocol):
    """What a line about a request says of it."""

    @property
    def header(self) -> RequestHeader: ...

    @property
    def origin(self) -> RequestSender: ...

    @property
    def size(self) -> int: ...


class TimedRequest(RequestFacts, Protocol):
    """A request with the time it began."""

    @property
    def started(self) -> float: ...


class ApiMetrics:
    """The requests of one API."""

    __slots__ = (
        "_count_errors",
        "_request_metrics",
        "api",
        "errors",
        "log_threshold_seconds",
        "now",
        "times",
    )

    def __init__(self, request_metrics: "RequestMetrics", api: str) -> None:
        self.api = api
        self.times = Histogram()
        # By error code; an answer with several counts each.
        self.errors: dict[int, int] = {}
        # Seconds; a request that took longer is worth a line.
        self.log_threshold_seconds = inf
        self._request_metrics = request_metrics
        self.now = request_metrics.now
        self._count_errors: CountErrors | None = None

    def count_time(self, started: float) -> float:
        """Count a request without an error; the seconds it took."""
        seconds = self.now() - started
        times = self.times
        times.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        times.total += seconds
        return seconds

    def count_request(self, request: TimedRequest, response: Message | None) -> None:
        """Count one request; runs for every single one, so `observe` is written out here."""
        seconds = self.now() - request.started
        times = self.times
        times.counts[bisect_left(SECONDS_BOUNDS, seconds)] += 1
        times.total += seconds
        if response is not None:
            count_errors = self._count_errors
            if count_errors is None:
                count_errors = self._count_errors = errors_counter(type(response))
            count_errors(response, self.errors)
        if seconds > self.log_threshold_seconds:
            self._request_metrics.log_request(self, request, seconds)

    def log_request(self, request: RequestFacts, seconds: float) -> None:
        """Leave a line about a request that was counted otherwise."""
        self._request_metrics.log_request(self, request, seconds)


class RequestMetrics:
    """The meters of one node, and what is done about slow requests."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now` counts seconds, as exactly as it can."""
        self.now = now
        self.slow_requests = 0
        self._by_api: dict[int, ApiMetrics] = {}
        self._slow_threshold_seconds = inf
        self._tracing = False
        self._second_began = -inf
        self._lines = 0
        self._unlisted = 0

    def __iter__(self) -> Iterator[ApiMetrics]:
        return iter(self._by_api.values())

    def for_api(self, api_key: int) -> ApiMetrics:
        """The meter of an API; to be looked up once, not per request."""
        meter = self._by_api.get(api_key)
        if meter is None:
            meter = self._by_api[api_key] = ApiMetrics(self, APIS[api_key].name)
            meter.log_threshold_seconds = self._log_threshold_seconds()
        return meter

    def set_slow_threshold(self, milliseconds: float | None) -> None:
        """From how long on a request counts as slow; None: none does."""
        self._slow_threshold_seconds = inf if milliseconds is None else milliseconds / 1000
        self.update_log_level()

    def update_log_level(self) -> None:
        """Begin or cease to trace, as the logger's level says; to be called now and then."""
        self._tracing = logger.isEnabledFor(logging.DEBUG)
        for meter in self._by_api.values():
            meter.log_threshold_seconds = self._log_threshold_seconds()

    def _log_threshold_seconds(self) -> float:
        return -inf if self._tracing else self._slow_threshold_seconds

    def log_request(self, api_metrics: ApiMetrics, request: RequestFacts, seconds: float) -> None:
        """Leave a line about a request that is slow, or about any one while tracing."""
        if seconds > self._slow_threshold_seconds:
            self.slow_requests += 1
            if self._may_warn():
                logger.warning(
                    "slow request: api=%s version=%d correlation_id=%d client_id=%s client=%s"
                    " principal=%s duration_ms=%.3f bytes=%d",
                    *_log_fields(api_metrics, request, seconds),
                )
        if self._tracing:
            logger.debug(
                "request: api=%s version=%d correlation_id=%d client_id=%s client=%s"
                " principal=%s duration_ms=%.3f bytes=%d",
                *_log_fields(api_metrics, request, seconds),
            )

    def _may_warn(self) -> bool:
        now = self.now()
        if now - self._second_began >= 1:
            if self._unlisted:
                logger.warning("more slow requests not listed: requests=%d", self._unlisted)
            self._second_began, self._lines, self._unlisted = now, 0, 0
        self._lines += 1
        if self._lines <= SLOW_LINES_PER_SECOND:
            return True
        self._unlisted += 1
        return False


def _log_fields(
    api_metrics: ApiMetrics, request: RequestFacts, seconds: float
) -> tuple[object, ...]:
    header, caller = request.header, request.origin
    return (
        api_metrics.api,
        header.api_version,
        header.correlation_id,
        header.client_id,
        caller.client_host,
        caller.principal,
        seconds * 1000,
        request.size,
    )
