"""Groups of the consumer protocol (KIP-848)."""

from dataclasses import dataclass

from headrace.core.config_keys import INT_MAX, ConfigType, OneOf, Range, key
from headrace.core.errors import InvalidConfig

_INT = ConfigType.INT


@dataclass(frozen=True, kw_only=True, eq=False)
class ConsumerGroupKeys:
    """How often members of consumer groups heartbeat, and what such groups may do."""

    group_consumer_session_timeout_ms: int = key(
        _INT,
        45_000,
        Range(1),
        doc="How long a member of a consumer group may be silent before it is removed.",
    )
    group_consumer_min_session_timeout_ms: int = key(
        _INT, 45_000, Range(1), doc="Least that consumer.session.timeout.ms of a group may be."
    )
    group_consumer_max_session_timeout_ms: int = key(
        _INT, 60_000, Range(1), doc="Most that consumer.session.timeout.ms of a group may be."
    )
    group_consumer_heartbeat_interval_ms: int = key(
        _INT,
        5_000,
        Range(1),
        doc="How often members of a consumer group are asked to heartbeat; while a group "
        "converges they are asked to be quicker.",
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        _INT, 5_000, Range(1), doc="Least that consumer.heartbeat.interval.ms of a group may be."
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        _INT, 15_000, Range(1), doc="Most that consumer.heartbeat.interval.ms of a group may be."
    )
    group_consumer_max_size: int = key(
        _INT, INT_MAX, Range(1), doc="Most members of one consumer group; others are refused."
    )
    group_consumer_assignors: tuple[str, ...] = key(
        ConfigType.LIST,
        ("uniform", "range", "roundrobin"),
        OneOf(("uniform", "range", "roundrobin")),
        doc="Assignors that members of consumer groups may ask for; the first serves groups "
        "that ask for none. Kafka has uniform and range.",
    )
    group_consumer_migration_policy: str = key(
        ConfigType.STRING,
        "bidirectional",
        OneOf(("bidirectional", "upgrade", "downgrade", "disabled")),
        doc="Which way a group with members may change between the classic and the consumer "
        "protocol.",
    )

    def __post_init__(self) -> None:
        """Refuse values that do not lie between their own limits."""
        self._check_between(
            "session.timeout.ms",
            self.group_consumer_min_session_timeout_ms,
            self.group_consumer_session_timeout_ms,
            self.group_consumer_max_session_timeout_ms,
        )
        self._check_between(
            "heartbeat.interval.ms",
            self.group_consumer_min_heartbeat_interval_ms,
            self.group_consumer_heartbeat_interval_ms,
            self.group_consumer_max_heartbeat_interval_ms,
        )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            raise InvalidConfig(
                "group.consumer.heartbeat.interval.ms must be less than "
                "group.consumer.session.timeout.ms"
            )
        if not self.group_consumer_assignors:
            raise InvalidConfig("group.consumer.assignors must name at least one assignor")

    @staticmethod
    def _check_between(name: str, low: int, value: int, high: int) -> None:
        if not low <= value <= high:
            raise InvalidConfig(
                f"group.consumer.{name}={value} must lie between group.consumer.min.{name} "
                f"({low}) and group.consumer.max.{name} ({high})"
            )
