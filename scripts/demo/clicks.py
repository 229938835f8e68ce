"""Publishes clicks as they would come in, and keeps its own count of them."""

import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime

from confluent_kafka import KafkaError, Message, Producer
from rich.console import Console

from scripts.demo.stream import progress_bar

TOPIC = "clicks"
PAGES = ("home", "search", "item", "basket", "pay", "help")
_WEIGHTS = (30, 25, 25, 10, 6, 4)
WINDOW_SECONDS = 5
CLICKS_PER_SECOND = 4_000
_STEP_SECONDS = 0.05
# Clicks come late by up to this; the pipeline waits for a minute.
_LATE_SECONDS = 2.0
_BOTS = 0.1


@dataclass(slots=True)
class Published:
    """What the generator knows: where each click stands, and how many there were of each kind."""

    places: set[tuple[int, int]] = field(default_factory=set)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: int = 0
    seconds: float = 0.0


class Clicks(threading.Thread):
    """Publishes a number of clicks at a steady rate beside everything else."""

    def __init__(self, address: str, total: int, console: Console) -> None:
        super().__init__(name="clicks")
        self.published = Published()
        self._address = address
        self._total = total
        self._console = console
        self._enough = threading.Event()

    def stop(self) -> None:
        """Publish no more; returns when the thread has ended."""
        self._enough.set()
        self.join()

    def run(self) -> None:
        producer = Producer(
            {"bootstrap.servers": self._address, "acks": "all", "linger.ms": 5, "log_level": 0}
        )
        chance = random.Random(7)
        began, sent = time.perf_counter(), 0
        with progress_bar(self._console) as progress:
            task = progress.add_task("clicks", total=self._total)
            while sent < self._total and not self._enough.is_set():
                elapsed = time.perf_counter() - began
                due = min(self._total, int(elapsed * CLICKS_PER_SECOND))
                for _ in range(due - sent):
                    self._click(producer, chance)
                sent = due
                producer.poll(_STEP_SECONDS)
                progress.update(task, completed=len(self.published.places))
            producer.flush(60)
            progress.update(task, completed=len(self.published.places))
        self.published.seconds = time.perf_counter() - began

    def _click(self, producer: Producer, chance: random.Random) -> None:
        at = datetime.fromtimestamp(time.time() - chance.random() * _LATE_SECONDS, UTC)
        user = f"user-{int(chance.paretovariate(1.2)) % 5_000}"
        page = chance.choices(PAGES, _WEIGHTS)[0]
        bot = chance.random() < _BOTS
        value = {"user": user, "page": page, "bot": bot, "at": at.isoformat()}
        producer.produce(TOPIC, json.dumps(value), user, on_delivery=self._acknowledged)
        if not bot:
            self.published.counts[window_of(at), page] += 1

    def _acknowledged(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.published.failed += 1
        else:
            self.published.places.add((partition, offset))


def window_of(at: datetime) -> str:
    """The beginning of the window, as the pipeline writes it."""
    second = int(at.timestamp())
    return datetime.fromtimestamp(second - second % WINDOW_SECONDS, UTC).strftime("%H:%M:%S")
