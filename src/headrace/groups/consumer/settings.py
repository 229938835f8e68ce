"""The rules one group lives by: the broker's configs, with those of the group over them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from headrace.core.broker_configs import BrokerConfig
from headrace.groups.consumer.assignors import ASSIGNORS

FASTEST_HEARTBEAT_MS: Final = 200
"""The interval asked for while a group converges.

Short enough that twenty members settle within a second or two, long enough that a member spends
far more time reading than heartbeating.
"""

CONVERGING_HEARTBEATS_PER_SECOND: Final = 250
"""What all members of one converging group may send together: large groups are asked for less."""

STABILIZING_MS: Final = 3_000
"""How long a group is watched closely after its last change: where one member has just joined,
others are likely to follow, and those already in should hear of them soon."""


class MigrationPolicy(Enum):
    """Which way a group may change its protocol while it has members."""

    BIDIRECTIONAL = "bidirectional"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    DISABLED = "disabled"

    @property
    def may_upgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.UPGRADE)

    @property
    def may_downgrade(self) -> bool:
        return self in (MigrationPolicy.BIDIRECTIONAL, MigrationPolicy.DOWNGRADE)


@dataclass(frozen=True, slots=True)
class ConsumerGroupSettings:
    """What a decision about one group needs to know of the configuration."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = tuple(ASSIGNORS)
    """The first is the one for groups whose members do not ask for any."""
    migration_policy: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic_max_size: int = 2**31 - 1

    @classmethod
    def of(cls, config: BrokerConfig) -> "ConsumerGroupSettings":
        return cls(
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            max_size=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
            migration_policy=MigrationPolicy(config.group_consumer_migration_policy),
            classic_max_size=config.group_max_size,
        )

    def with_configs(self, configs: Mapping[str, str]) -> "ConsumerGroupSettings":
        """With what is set for one group."""
        if not configs:
            return self
        return replace(
            self,
            session_timeout_ms=int(
                configs.get("consumer.session.timeout.ms", self.session_timeout_ms)
            ),
            heartbeat_interval_ms=int(
                configs.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms)
            ),
        )

    def heartbeat_interval(self, members: int, unchanged_ms: int | None, is_stable: bool) -> int:
        """The interval to ask for in a group that last moved `unchanged_ms` ago.

        A group that converges is asked to hurry, but one that waits for a slow member hurries
        less the longer it waits.
        """
        if unchanged_ms is None or (is_stable and unchanged_ms >= STABILIZING_MS):
            return self.heartbeat_interval_ms
        shared_ms = members * 1_000 // CONVERGING_HEARTBEATS_PER_SECOND
        return min(
            self.heartbeat_interval_ms, max(FASTEST_HEARTBEAT_MS, shared_ms, unchanged_ms // 8)
        )
