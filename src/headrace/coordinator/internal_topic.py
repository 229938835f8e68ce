"""The topic that a coordinator keeps its state in: created on first need, a partition per key."""

from collections.abc import Callable
from functools import lru_cache

from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.metadata.auto_topic_creation import AutoTopicCreationManager
from headrace.metadata.image import Image, Topic


@lru_cache(maxsize=4096)
def string_hash(text: str) -> int:
    """Java's `String.hashCode`, which decides which coordinator a key has."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(key: str, count: int) -> int:
    """Kafka's rule; the one number without a positive counterpart counts as 0."""
    value = string_hash(key)
    return 0 if value == -(1 << 31) else abs(value) % count


class InternalTopic:
    """A coordinator's topic as the metadata shows it."""

    def __init__(
        self,
        newest_image: Callable[[], Image],
        topics: AutoTopicCreationManager,
        name: str,
    ) -> None:
        self._newest_image = newest_image
        self._topics = topics
        self._name = name

    def partition_of(self, key: str) -> int | None:
        """Where a key belongs; None while the topic does not exist."""
        topic = self._topic
        return None if topic is None else partition_for(key, len(topic.partitions))

    @property
    def _topic(self) -> Topic | None:
        return self._newest_image().topics.get(self._name)

    async def ensure(self) -> None:
        """Create the topic if it is not there; raises COORDINATOR_NOT_AVAILABLE."""
        if self._topic is not None:
            return
        try:
            await self._topics.ensure(self._name)
        except HeadraceError:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from None
