"""The topic that a coordinator keeps its state in: created on first need, a partition per key."""

import asyncio
import logging
from functools import lru_cache

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.controller.controller import Controller
from headrace.core.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)


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

    def __init__(self, controller: Controller, topic: TopicToCreate) -> None:
        self._controller = controller
        self._topic = topic
        self._creation: asyncio.Task[None] | None = None

    def partition_count(self) -> int | None:
        """None while the topic does not exist."""
        topic = self._controller.image.topics.get(self._topic.name)
        return None if topic is None else len(topic.partitions)

    def partition_of(self, key: str) -> int:
        """Where a key belongs, also before the topic exists."""
        return partition_for(key, self.partition_count() or self._topic.num_partitions)

    async def ensure(self) -> None:
        """Create the topic if it is not there; raises COORDINATOR_NOT_AVAILABLE."""
        if self.partition_count() is not None:
            return
        if self._creation is None:
            self._creation = asyncio.get_running_loop().create_task(self._create())
        await asyncio.shield(self._creation)

    async def close(self) -> None:
        if self._creation is not None:
            await asyncio.gather(self._creation, return_exceptions=True)

    async def _create(self) -> None:
        try:
            (created,) = await self._controller.submit(CreateTopics((self._topic,)))
        finally:
            self._creation = None
        if created.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning(
                "cannot create a topic: topic=%s error=%s", self._topic.name, created.message
            )
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
