"""The topic that groups are kept in: created on first need, and which partition is whose."""

import asyncio
import logging
from functools import lru_cache

from headrace.controller.commands import CreateTopics, TopicToCreate
from headrace.controller.controller import Controller
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode
from headrace.metadata.names import OFFSETS_TOPIC

logger = logging.getLogger(__name__)


@lru_cache(maxsize=4096)
def string_hash(text: str) -> int:
    """Java's `String.hashCode`, which decides which coordinator a group has."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(data[::2], data[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def partition_for(group_id: str, count: int) -> int:
    """Kafka's rule; the one number without a positive counterpart counts as 0."""
    value = string_hash(group_id)
    return 0 if value == -(1 << 31) else abs(value) % count


class OffsetsTopic:
    """`__consumer_offsets` as the metadata shows it."""

    def __init__(self, controller: Controller, config: BrokerConfig) -> None:
        self._controller = controller
        self._config = config
        self._creation: asyncio.Task[None] | None = None

    def partition_count(self) -> int | None:
        """None while the topic does not exist."""
        topic = self._controller.image.topics.get(OFFSETS_TOPIC)
        return None if topic is None else len(topic.partitions)

    def partition_of(self, group_id: str) -> int:
        """Where a group belongs, also before the topic exists."""
        count = self.partition_count() or self._config.offsets_topic_num_partitions
        return partition_for(group_id, count)

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
        config = self._config
        topic = TopicToCreate(
            OFFSETS_TOPIC,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            configs=(
                ("cleanup.policy", "compact"),
                ("compression.type", "producer"),
                ("segment.bytes", str(config.offsets_topic_segment_bytes)),
            ),
        )
        try:
            (created,) = await self._controller.submit(CreateTopics((topic,)))
        finally:
            self._creation = None
        if created.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning(
                "cannot create a topic: topic=%s error=%s", OFFSETS_TOPIC, created.message
            )
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
