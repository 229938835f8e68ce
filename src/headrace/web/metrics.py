"""`/metrics`: whatever the sources tell, as text for Prometheus.

The text is written here and not by a library: the format is a few lines, and ours gives way to
other work on the event loop after every few hundred numbers, so that scraping a broker with
thousands of partitions does not hold up its clients.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from inspect import isawaitable
from typing import Final, Protocol

from headrace.core.metrics import Family, Histogram, Metric, Sample

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
# Less than a millisecond's worth.
SAMPLES_AT_ONCE: Final = 200


class MetricsSource(Protocol):
    """Anything that has metrics to tell."""

    def collect(self) -> Iterable[Family] | Awaitable[Iterable[Family]]: ...


async def render(sources: Sequence[MetricsSource]) -> bytes:
    """The metrics of all sources; a family that several have is told once, by the first."""
    pieces: list[bytes] = []
    lines: list[str] = []
    told: set[str] = set()
    since_pause = 0
    for source in sources:
        collected = source.collect()
        families = await collected if isawaitable(collected) else collected
        for metric, samples in families:
            if metric.name in told:
                continue
            told.add(metric.name)
            lines.append(f"# HELP {metric.name} {_escape_help(metric.help)}")
            lines.append(f"# TYPE {metric.name} {metric.kind}")
            for sample in samples:
                _write(lines, metric, sample)
                since_pause += 1
                if since_pause >= SAMPLES_AT_ONCE:
                    since_pause = 0
                    pieces.append(_text(lines))
                    await asyncio.sleep(0)
    pieces.append(_text(lines))
    return b"".join(pieces)


def _text(lines: list[str]) -> bytes:
    """The lines so far, which are done with."""
    text = "".join(f"{line}\n" for line in lines).encode()
    lines.clear()
    return text


def _write(lines: list[str], metric: Metric, sample: Sample) -> None:
    values, value = sample
    labels = ",".join(
        f'{name}="{_escape(text)}"' for name, text in zip(metric.labels, values, strict=True)
    )
    if isinstance(value, Histogram):
        _write_histogram(lines, metric.name, labels, value)
    else:
        lines.append(f"{metric.name}{{{labels}}} {value}" if labels else f"{metric.name} {value}")


def _write_histogram(lines: list[str], name: str, labels: str, histogram: Histogram) -> None:
    before = f"{labels}," if labels else ""
    below = 0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=False):
        below += count
        lines.append(f'{name}_bucket{{{before}le="{bound}"}} {below}')
    below += histogram.counts[-1]
    lines.append(f'{name}_bucket{{{before}le="+Inf"}} {below}')
    braced = f"{{{labels}}}" if labels else ""
    lines.append(f"{name}_sum{braced} {histogram.total}")
    lines.append(f"{name}_count{braced} {below}")


def _escape(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")
