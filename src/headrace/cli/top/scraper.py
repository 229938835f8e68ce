"""What the metrics of an HTTP API add, where there is one."""

import re
import time
from collections.abc import Iterator
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit
from urllib.request import urlopen

import typer

from headrace.cli.top.rates import TOPIC_RATES, MetricsSample
from headrace.client import BrokerUnreachable

HTTP_PORT: Final = 8080
TIMEOUT_SECONDS: Final = 2.0
# An HTTP API that was not found is not looked for at every turn.
RETRY_SECONDS: Final = 10.0
BYTES_MAX: Final = 64 * 1024 * 1024

_SAMPLE: Final = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


def url_for(metrics: str, bootstrap: str) -> str | None:
    """The address to ask; None where metrics are not wanted."""
    if metrics == "off":
        return None
    if metrics == "auto":
        host = bootstrap.split(",")[0].rpartition(":")[0]
        return f"http://{host}:{HTTP_PORT}/metrics"
    parts = urlsplit(metrics)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise typer.BadParameter(
            f"{metrics!r}: expected http://HOST:PORT, auto or off", param_hint="--metrics"
        )
    return metrics if parts.path.strip("/") else f"{metrics.rstrip('/')}/metrics"


class Scraper:
    """Asks one address, and gives up on it for a while when it does not answer."""

    def __init__(self, url: str | None, *, required: bool) -> None:
        """`required`: that there is no answer at the first time is an error."""
        self._url = url
        self._required = required
        self._retry_at = 0.0

    def scrape(self, cluster_id: str) -> MetricsSample | None:
        """What the HTTP API tells, if it is one of this cluster."""
        if self._url is None or time.monotonic() < self._retry_at:
            return None
        try:
            with urlopen(self._url, timeout=TIMEOUT_SECONDS) as response:
                text = response.read(BYTES_MAX).decode(errors="replace")
                found = parse_metrics(text, cluster_id, time.monotonic())
            reason = "no metrics of this cluster"
        except (OSError, HTTPException) as error:
            found, reason = None, str(error)
        if found is None:
            if self._required:
                raise BrokerUnreachable(
                    f"{self._url}: {reason}",
                    hint="name the HTTP API of this broker with --metrics URL, or use auto",
                )
            self._retry_at = time.monotonic() + RETRY_SECONDS
        self._required = False
        return found


def parse_metrics(text: str, cluster_id: str, at: float) -> MetricsSample | None:
    """The figures of interest at a time; None if they are not of this cluster."""
    topics: dict[str, dict[str, float]] = {}
    totals = dict.fromkeys(("request_seconds_count", "request_errors_total", "connections"), 0.0)
    ours = False
    for name, labels, value in _samples(text):
        short = name.removeprefix("headrace_")
        if short == "cluster_info":
            ours = ours or labels.get("cluster_id") == cluster_id
        elif short in totals:
            totals[short] += value
        elif short.startswith("topic_"):
            rate = short.removeprefix("topic_").removesuffix("_total")
            if rate in TOPIC_RATES:
                own = topics.setdefault(labels["topic"], dict.fromkeys(TOPIC_RATES, 0.0))
                own[rate] = value
    if not ours:
        return None
    requests, errors, connections = totals.values()
    return MetricsSample(at, topics, requests, errors, int(connections))


def _samples(text: str) -> Iterator[tuple[str, dict[str, str], float]]:
    for name, labels, value in _SAMPLE.findall(text):
        if name.startswith("headrace_"):
            named = {key: _unescape(escaped) for key, escaped in _LABEL.findall(labels)}
            yield name, named, float(value)


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], text)
