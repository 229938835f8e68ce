"""What the coordinator takes from the broker's configuration."""

from dataclasses import dataclass, field

from headrace.core.broker_configs import BrokerConfig
from headrace.groups.consumer.settings import ConsumerGroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Limits of groups and of committed offsets, in the broker keys' own words."""

    initial_rebalance_delay_ms: int = 3_000
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000
    consumer: ConsumerGroupSettings = field(default_factory=ConsumerGroupSettings)

    @classmethod
    def of(cls, config: BrokerConfig) -> "GroupSettings":
        return cls(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_size=config.group_max_size,
            offset_metadata_max_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
            consumer=ConsumerGroupSettings.of(config),
        )
