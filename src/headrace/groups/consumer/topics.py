"""The topics a group may read: a narrow view of the cluster's metadata."""

from collections.abc import Iterable
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.metadata.image import Image, Topic


class TopicInfo(NamedTuple):
    """What the division of a topic depends on."""

    name: str
    id: UUID
    partitions: int


class TopicsView(Protocol):
    """One state of the cluster's topics."""

    @property
    def version(self) -> int:
        """Another number whenever anything may have changed."""
        ...

    def get(self, name: str) -> TopicInfo | None: ...

    def by_id(self, topic_id: UUID) -> TopicInfo | None: ...

    def names(self) -> Iterable[str]: ...


class ImageTopics:
    """The view over a metadata image."""

    __slots__ = ("_image",)

    def __init__(self, image: Image) -> None:
        self._image = image

    @property
    def version(self) -> int:
        return self._image.offset

    def get(self, name: str) -> TopicInfo | None:
        return _info(self._image.topics.get(name))

    def by_id(self, topic_id: UUID) -> TopicInfo | None:
        return _info(self._image.topics_by_id.get(topic_id))

    def names(self) -> Iterable[str]:
        return self._image.topics


def _info(topic: Topic | None) -> TopicInfo | None:
    return None if topic is None else TopicInfo(topic.name, topic.id, len(topic.partitions))
