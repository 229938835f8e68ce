"""Admin calls, blocking."""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from headrace.client.blocking.cluster_requests import ClusterRequests
from headrace.client.core import admin_groups, admin_state, admin_topics
from headrace.client.core.group_lag import group_lags
from headrace.client.core.group_models import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    OffsetMove,
    PartitionLag,
    ShiftBy,
    committed_offsets,
)
from headrace.client.core.group_reset import plan_offsets
from headrace.client.core.lookups import list_offsets
from headrace.client.core.models import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ListedOffset,
    LogDirDescription,
    NewTopic,
    OffsetSpec,
    ProducerDescription,
    TopicDescription,
)
from headrace.client.core.offset_operations import fetch_offsets
from headrace.core.config_resources import ConfigResource
from headrace.core.ids import TopicPartition


class Admin:
    """Topics, configs, groups, records and what lies on disk; reached as `Client.admin`.

    Calls retry what may heal until `call_timeout_ms`, and raise the broker's error otherwise.
    """

    def __init__(self, requests: ClusterRequests) -> None:
        self._requests = requests

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, UUID]:
        """Create topics and return their ids; with `validate_only` only check.

        Raises the first topic's refusal; topics without fault are created all the same.
        """
        return self._requests.run(
            admin_topics.create_topics(self._requests.session, topics, validate_only=validate_only)
        )

    def delete_topics(self, topics: Collection[str | UUID]) -> None:
        """Delete topics by name or id, with all their records."""
        self._requests.run(admin_topics.delete_topics(self._requests.session, topics))

    def list_topics(self, *, internal: bool = False) -> list[TopicDescription]:
        """Every topic, by name; `internal` includes the cluster's own."""
        return self._requests.run(
            admin_topics.list_topics(self._requests.session, internal=internal)
        )

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription]:
        """Partitions, leaders and replicas of these topics."""
        return self._requests.run(admin_topics.describe_topics(self._requests.session, names))

    def create_partitions(
        self,
        counts: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Raise topics to a total number of partitions; keys may hash elsewhere afterwards."""
        self._requests.run(
            admin_topics.create_partitions(
                self._requests.session, counts, assignments or {}, validate_only=validate_only
            )
        )

    def describe_configs(
        self,
        resources: Collection[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        documentation: bool = False,
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        """Configs of topics or brokers with their sources; `keys` None means all."""
        return self._requests.run(
            admin_state.describe_configs(
                self._requests.session, resources, keys=keys, documentation=documentation
            )
        )

    def alter_configs(
        self,
        changes: Mapping[ConfigResource, Sequence[ConfigChange]],
        *,
        validate_only: bool = False,
    ) -> None:
        """Change the given keys and leave all others as they are."""
        self._requests.run(
            admin_state.alter_configs(self._requests.session, changes, validate_only=validate_only)
        )

    def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Drop records below the offsets (-1: all); returns where each log starts now."""
        return self._requests.run(admin_state.delete_records(self._requests.session, before))

    def list_offsets(
        self, specs: Mapping[TopicPartition, OffsetSpec], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset]:
        """Offsets by meaning (EARLIEST, LATEST, MAX_TIMESTAMP) or time."""
        return self._requests.run(
            list_offsets(self._requests.session, specs, read_committed=read_committed)
        )

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, brokers and controller."""
        return self._requests.run(admin_topics.describe_cluster(self._requests.session))

    def describe_log_dirs(self, brokers: Collection[int] | None = None) -> list[LogDirDescription]:
        """Data directories of these brokers (None: all), and the size of each replica."""
        return self._requests.run(admin_state.describe_log_dirs(self._requests.session, brokers))

    def describe_producers(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        """Idempotent and transactional producers that the partitions' leaders remember."""
        return self._requests.run(
            admin_state.describe_producers(self._requests.session, partitions)
        )

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> list[GroupListing]:
        """Every group, by name; only those in these states, or of these types, if given."""
        return self._requests.run(admin_groups.list_groups(self._requests.session, states, types))

    def describe_groups(self, groups: Collection[str]) -> dict[str, GroupDescription]:
        """State, assignor and members of groups of either protocol."""
        return self._requests.run(admin_groups.describe_groups(self._requests.session, groups))

    def delete_groups(self, groups: Collection[str]) -> None:
        """Delete groups with their offsets; one with members is refused, the others go."""
        self._requests.run(admin_groups.delete_groups(self._requests.session, groups))

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """What a group has committed for these partitions (None: all), where it has."""
        return self._requests.run(fetch_offsets(self._requests.session, group, partitions))

    def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        """Set a group's offsets; refused while it has members. A new group comes to be."""
        self._requests.run(
            admin_groups.alter_offsets(self._requests.session, group, committed_offsets(offsets))
        )

    def plan_offsets(
        self, group: str, wanted: Mapping[TopicPartition, int | OffsetSpec | ShiftBy]
    ) -> list[OffsetMove]:
        """Where a reset would move a group's offsets; `alter_offsets` then does it."""
        return self._requests.run(plan_offsets(self._requests.session, group, wanted))

    def delete_offsets(self, group: str, partitions: Collection[TopicPartition]) -> None:
        """Forget a group's offsets of topics that no member is subscribed to."""
        self._requests.run(admin_groups.delete_offsets(self._requests.session, group, partitions))

    def remove_members(
        self, group: str, *, instance_ids: Collection[str] = (), member_ids: Collection[str] = ()
    ) -> None:
        """Put members out of a group, static ones by instance id; live ones will join again."""
        self._requests.run(
            admin_groups.remove_members(
                self._requests.session, group, instance_ids=instance_ids, member_ids=member_ids
            )
        )

    def group_lag(self, group: str) -> list[PartitionLag]:
        """How far a group is behind, and who reads, by partition."""
        return (self.group_lags([group]))[group]

    def group_lags(
        self, groups: Collection[str], *, members: bool = True, starts: bool = False
    ) -> dict[str, list[PartitionLag]]:
        """The lag of several groups in few requests.

        `members=False` leaves out who reads; `starts` asks for log starts too.
        """
        return self._requests.run(
            group_lags(self._requests.session, groups, members=members, starts=starts)
        )
