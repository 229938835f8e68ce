"""The row about compaction: does a small produce wait while 1 GB with 5 million keys is compacted?

The topic is filled while compaction is held off, then released by a config change; a client
process times small produces on another topic until the log has shrunk and the compactor rests.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)

from bench.percentiles import percentile
from bench.readings import Readings
from bench.sides import Side, report_of
from tests.support.brokers import BrokerProcess
from tests.support.processes import memory, process_tree

_HELD_OFF = str(1 << 40)
_VALUE_BYTES = 90
_TIMEOUT_SECONDS = 600
_QUIET_SECONDS = 3.0
_SETTINGS = {"log.cleaner.backoff.ms": "500"}
_TOPIC_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 << 20),
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": _HELD_OFF,
}


def measure_compaction(side: Side, keys: int, readings: Readings) -> None:
    """p99 of a small produce beside the compactor, and the most memory the compactor took."""
    broker = side.fresh("compaction", _SETTINGS)
    broker.start()
    try:
        own = Side(side.name, broker, side.fresh)
        own.create_topic("beside")
        own.create_topic("keyed", 1, _TOPIC_CONFIG)
        _fill(broker, keys)
        _watch(own, keys, readings)
    finally:
        broker.kill()
        shutil.rmtree(broker.data_dir, ignore_errors=True)


def _fill(broker: BrokerProcess, keys: int) -> None:
    """Every key twice: half of the log can go."""
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20, "acks": "1"}
    )
    value, chunk = b"v" * _VALUE_BYTES, 5_000
    for _ in range(2):
        for first in range(0, keys, chunk):
            messages = [
                {"key": b"%010d" % key, "value": value}
                for key in range(first, min(first + chunk, keys))
            ]
            while len(producer) > 80_000:
                producer.poll(0.001)
            producer.produce_batch("keyed", messages, partition=0)
    if producer.flush(_TIMEOUT_SECONDS):
        raise RuntimeError("records were not acknowledged in time")


def _watch(own: Side, keys: int, readings: Readings) -> None:
    broker = own.broker
    directory, flag = broker.partition_dir("keyed"), broker.data_dir.with_suffix(".compacted")
    flag.unlink(missing_ok=True)
    base = broker.memory().total
    full, peak, stopped = _log_bytes(directory), _Peak(broker.pid, base), threading.Event()
    sampler = threading.Thread(target=peak.sample_until, args=(stopped,))
    sampler.start()
    with own.driver("compaction_watch", topic="beside", flag=str(flag)) as client:
        try:
            started = time.monotonic()
            _release(own)
            ended = _wait_until_compacted(directory, full)
        finally:
            flag.touch()
            stopped.set()
            sampler.join()
        outcome = report_of(client)
    flag.unlink()
    name = own.name
    readings.add("compaction: seconds", name, ended - started)
    readings.add("compaction, one produce: p50 ms", name, percentile(outcome.latencies_ms, 50))
    readings.add("compaction, one produce: p99 ms", name, percentile(outcome.latencies_ms, 99))
    readings.add("compaction, compactor's memory: MB", name, peak.most / 1e6)
    readings.add("compaction: millions of keys", name, keys / 1e6)


class _Peak:
    """The most memory the compactor took: its own process, or what the broker grew by."""

    def __init__(self, pid: int, base: int) -> None:
        self._pid = pid
        self._base = base
        self.most = 0

    def sample_until(self, stopped: threading.Event) -> None:
        while not stopped.wait(0.05):
            children = process_tree(self._pid)[1:]
            if children:
                held = max(memory(child).total for child in children)
            else:
                held = memory(self._pid).total - self._base
            self.most = max(self.most, held)


def _release(side: Side) -> None:
    entry = ConfigEntry(
        "min.compaction.lag.ms",
        "0",
        source=ConfigSource.DYNAMIC_TOPIC_CONFIG,
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ResourceType.TOPIC, "keyed", incremental_configs=[entry])
    for future in side.admin.incremental_alter_configs([resource]).values():
        future.result(60)


def _wait_until_compacted(directory: Path, full: int) -> float:
    """The time the log last changed, once it has shrunk and stayed still for a while."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    size, changed = full, time.monotonic()
    while time.monotonic() < deadline:
        now = _log_bytes(directory)
        if now != size:
            size, changed = now, time.monotonic()
        busy = any(directory.glob("*.cleaned")) or any(directory.glob("*.swap"))
        if size < 0.7 * full and not busy and time.monotonic() - changed > _QUIET_SECONDS:
            return changed
        time.sleep(0.1)
    raise RuntimeError(f"not compacted in {_TIMEOUT_SECONDS} s: {full} bytes, now {size}")


def _log_bytes(directory: Path) -> int:
    total = 0
    for path in directory.glob("*.log"):
        try:
            total += path.stat().st_size
        except FileNotFoundError:
            continue
    return total
