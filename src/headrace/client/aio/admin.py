"""Admin calls, awaited."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.client.core import admin_state, admin_topics
from headrace.client.core.lookups import list_offsets
from headrace.client.core.models import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    OffsetSpec,
    ProducerDescription,
    TopicDescription,
)
from headrace.core.ids import TopicPartition

if TYPE_CHECKING:
    from headrace.client.aio.client import AsyncClient


class AsyncAdmin:
    """Topics, configs, records and what lies on disk; reached as `AsyncClient.admin`.

    Calls retry what may heal until `call_timeout_ms`, and raise the broker's error otherwise.
    """

    def __init__(self, client: "AsyncClient") -> None:
        self._client = client

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, UUID]:
        """Create topics and return their ids; with `validate_only` only check.

        Raises the first topic's refusal; topics without fault are created all the same.
        """
        return await self._client.run(
            admin_topics.create_topics(self._client.session, topics, validate_only=validate_only)
        )

    async def delete_topics(self, topics: Collection[str | UUID]) -> None:
        """Delete topics by name or id, with all their records."""
        await self._client.run(admin_topics.delete_topics(self._client.session, topics))

    async def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Every topic, by name; `internal` includes the cluster's own."""
        return await self._client.run(
            admin_topics.list_topics(self._client.session, internal=internal)
        )

    async def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of these topics."""
        return await self._client.run(admin_topics.describe_topics(self._client.session, names))

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raise topics to a total number of partitions; keys may hash elsewhere afterwards."""
        await self._client.run(
            admin_topics.create_partitions(
                self._client.session, counts, assignments or {}, validate_only=validate_only
            )
        )

    async def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configs of topics or brokers with their sources; `keys` None means all."""
        return await self._client.run(
            admin_state.describe_configs(
                self._client.session, resources, keys=keys, documentation=documentation
            )
        )

    async def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change the given keys and leave all others as they are."""
        await self._client.run(
            admin_state.alter_configs(self._client.session, changes, validate_only=validate_only)
        )

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Drop records below the offsets (-1: all); returns where each log starts now."""
        return await self._client.run(admin_state.delete_records(self._client.session, before))

    async def list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by meaning (EARLIEST, LATEST, MAX_TIMESTAMP) or time."""
        return await self._client.run(
            list_offsets(self._client.session, specs, read_committed=read_committed)
        )

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        return await self._client.run(admin_topics.describe_cluster(self._client.session))

    async def describe_log_dirs(
        self, brokers: Collection[int] | None = None
    ) -> list[LogDirDescription]:
        """Data directories of these brokers (None: all), and the size of each replica."""
        return await self._client.run(admin_state.describe_log_dirs(self._client.session, brokers))

    async def describe_producers(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Idempotent and transactional producers that the partitions' leaders remember."""
        return await self._client.run(
            admin_state.describe_producers(self._client.session, partitions)
        )
