"""Who is told of a new image, and in which order.

    replicas ──> coordinators ──> configs ──> snapshots ──> cache, for requests ──> replies leave

Each has seen an image before the next one hears of it, and before any request finds it in the
cache. What comes late (the group coordinator is made when it is first needed) is first told of the
image that the others have, as a difference from nothing.
"""

import logging
from bisect import insort
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import IntEnum
from operator import attrgetter
from typing import Protocol

from headrace.metadata.cache import MetadataCache
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image

logger = logging.getLogger(__name__)


class PublisherOrder(IntEnum):
    """The one order in which a new image is published."""

    REPLICAS = 0
    """Opens, closes and reconfigures logs: all that follow find the partitions ready."""
    COORDINATORS = 1
    """Forget what belonged to topics that are gone."""
    CONFIGS = 2
    """Take over dynamic configs that the replicas have resolved."""
    SNAPSHOTS = 3
    """Look whether it is time to write the image down."""


class MetadataPublisher(Protocol):
    """Called with the old image, the new one, and what differs; what takes long is awaited."""

    def __call__(self, old: Image, new: Image, delta: Delta, /) -> Awaitable[None] | None: ...


@dataclass(slots=True)
class _Entry:
    order: PublisherOrder
    publisher: MetadataPublisher
    seen: Image | None


class MetadataPublishers:
    """Carries each image to everybody; one `publish` at a time."""

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._entries: list[_Entry] = []
        self.on_added: Callable[[], None] = lambda: None
        """Called when there is a publisher that has seen nothing yet; shall cause a `publish`."""

    def add(
        self, order: PublisherOrder, publisher: MetadataPublisher, *, seen: Image | None = None
    ) -> None:
        """Publish to `publisher` from now on, behind the others of its order.

        `seen` is an image that it has taken over by other means.
        """
        insort(self._entries, _Entry(order, publisher, seen), key=attrgetter("order"))
        self.on_added()

    async def publish(self, image: Image, delta: Delta | None = None) -> None:
        """Tell everybody of `image`, then put it into the cache; `delta` is what differs from the
        image that is in the cache, if that is known."""
        before = self._cache.image
        # One may be added while another is waited for.
        while (entry := self._next(image)) is not None:
            old, entry.seen = entry.seen, image
            if old is None:
                old = Image(image.cluster_id)
            known = delta if old is before else None
            await _tell(entry.publisher, old, image, known or Delta.between(old, image))
        self._cache.image = image

    def _next(self, image: Image) -> _Entry | None:
        return next((entry for entry in self._entries if entry.seen is not image), None)


async def _tell(publisher: MetadataPublisher, old: Image, new: Image, delta: Delta) -> None:
    try:
        pending = publisher(old, new, delta)
        if pending is not None:
            await pending
    except Exception:
        # The change is committed; the others must hear of it all the same.
        logger.exception("a metadata publisher failed: offset=%d", new.offset)
