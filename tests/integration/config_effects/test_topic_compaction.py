"""Topic keys that decide when a log is compacted and what is left of it."""

from collections.abc import Iterator

import pytest

from headrace.testing import Broker
from tests.support.config_effects import (
    BUSY,
    alter,
    effect_of,
    eventually,
    publish,
    stored_batches,
    stored_keys,
)

HOUR = "3600000"
# Every batch in a segment of its own, and every segment worth compacting.
EAGER = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "100",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=BUSY) as running:
        yield running


def filled(broker: Broker, name: str, **configs: str) -> str:
    """A topic in which the same key was written five times."""
    named = {key.replace("_", "."): value for key, value in configs.items()}
    topic = broker.create_topic(name, configs={**EAGER, **named})
    publish(broker, topic, [b"value"] * 5, keys=[b"k"] * 5)
    return topic


def is_compacted(broker: Broker, topic: str) -> bool:
    # The newest one, and the active segment's, which is never compacted.
    return len(stored_keys(broker, topic)) <= 2


def test_an_eager_topic_is_compacted(broker: Broker) -> None:
    topic = filled(broker, "eager")
    eventually(lambda: is_compacted(broker, topic), "older records of the key go")


@effect_of("min.cleanable.dirty.ratio")
def test_a_log_that_is_not_dirty_enough_is_left_alone(broker: Broker) -> None:
    topic = filled(broker, "clean-enough", min_cleanable_dirty_ratio="1")
    witness = filled(broker, "clean-enough-witness")
    eventually(lambda: is_compacted(broker, witness), "the compactor has come round")
    assert len(stored_keys(broker, topic)) == 5
    alter(broker, topic, {"min.cleanable.dirty.ratio": "0.01"})
    eventually(lambda: is_compacted(broker, topic), "compacted once the limit is lowered")


@effect_of("min.compaction.lag.ms")
def test_a_record_is_left_alone_while_it_is_young(broker: Broker) -> None:
    topic = filled(broker, "young", min_compaction_lag_ms=HOUR)
    witness = filled(broker, "young-witness")
    eventually(lambda: is_compacted(broker, witness), "the compactor has come round")
    assert len(stored_keys(broker, topic)) == 5
    alter(broker, topic, {"min.compaction.lag.ms": "0"})
    eventually(lambda: is_compacted(broker, topic), "compacted once the lag is gone")


@effect_of("max.compaction.lag.ms")
def test_a_record_that_waited_too_long_is_compacted_however_clean_the_log(broker: Broker) -> None:
    topic = filled(broker, "overdue", min_cleanable_dirty_ratio="1")
    alter(broker, topic, {"max.compaction.lag.ms": "1"})
    eventually(lambda: is_compacted(broker, topic), "compacted because it is overdue")


@effect_of("delete.retention.ms")
def test_a_tombstone_goes_when_it_was_kept_long_enough(broker: Broker) -> None:
    def deleted(name: str, retention: str) -> str:
        topic = filled(broker, name, delete_retention_ms=retention)
        publish(broker, topic, [None, b"other"], keys=[b"k", b"other"])
        return topic

    def gone_after_more(topic: str) -> bool:
        # One round marks a tombstone, a later one drops it; a round needs something new.
        publish(broker, topic, [b"other"], keys=[b"other"])
        return b"k" not in stored_keys(broker, topic)

    kept, dropped = deleted("kept", HOUR), deleted("dropped", "0")
    eventually(lambda: gone_after_more(dropped), "the tombstone goes")
    publish(broker, kept, [b"other"], keys=[b"other"])
    eventually(lambda: stored_keys(broker, kept).count(b"k") == 1, "only the tombstone is left")
    values = [
        r.value for _, records in stored_batches(broker, kept) for r in records if r.key == b"k"
    ]
    assert values == [None]
