"""Topics that nobody created by hand: those that a client mentions, and those of coordinators."""

import asyncio
from collections.abc import Iterable
from typing import cast

from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.metadata.controller_channel import ControllerRequests
from headrace.metadata.names import OFFSETS_TOPIC
from headrace.protocol.message import Message
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_BY_DEFAULT = -1


class AutoTopicCreationManager:
    """Has topics created by the controller; a topic that is being created is not asked for twice.

    A coordinator's topic is what its coordinator needs, whoever mentions it first.
    """

    def __init__(self, requests: ControllerRequests, config: BrokerConfig) -> None:
        self._requests = requests
        self._config = config

    def create(self, names: Iterable[str]) -> None:
        """Create them in the background: clients ask again, and by then they are there."""
        self._ask(names)

    async def ensure(self, name: str) -> None:
        """Return when the topic is there; raises the controller's refusal."""
        await asyncio.shield(self._ask((name,))[name])

    def _ask(self, names: Iterable[str]) -> "dict[str, asyncio.Future[Message]]":
        return self._requests.ask(names, self._request_for, _refused_topics)

    def _request_for(self, names: list[str]) -> Message:
        return CreateTopicsRequest(topics=[self._creatable(name) for name in names])

    def _creatable(self, name: str) -> CreatableTopic:
        config = self._config
        partitions = replicas = _BY_DEFAULT
        configs: dict[str, str] = {}
        if name == OFFSETS_TOPIC:
            partitions = config.offsets_topic_num_partitions
            replicas = config.offsets_topic_replication_factor
            configs = {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            }
        return CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )


def _refused_topics(response: Message) -> dict[str, HeadraceError]:
    return {
        topic.name: ApiError(ErrorCode(topic.error_code), topic.error_message or "")
        for topic in cast(CreateTopicsResponse, response).topics
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
    }
