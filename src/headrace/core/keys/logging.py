"""What a broker writes about itself."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.config_keys import ConfigType, OneOf, Range, Update, key

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


class Levels(NamedTuple):
    """One level for all, and perhaps others for single loggers."""

    def problem(self, value: Any) -> str | None:
        for word in value:
            _, _, level = word.rpartition("=")
            if level not in LEVELS:
                return f"{level} is not one of: {', '.join(LEVELS)}"
        if sum("=" not in word for word in value) > 1:
            return "there can be one level for all loggers only"
        return None

    def __str__(self) -> str:
        return f"[{', '.join(LEVELS)}], LOGGER=[{', '.join(LEVELS)}]"


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggingKeys:
    """Form and amount of log lines. Named `logging` since `log` is where records are."""

    logging_level: tuple[str, ...] = key(
        ConfigType.LIST,
        ("info",),
        Levels(),
        doc="Headrace only. From which level on lines are written; `LOGGER=LEVEL` for one logger, "
        "as `info,headrace.broker.metering=debug` to follow every request. Also `--log-level`.",
    )
    logging_format: str = key(
        ConfigType.STRING,
        "text",
        OneOf(FORMATS),
        doc="Headrace only. Lines for people, or one JSON object each. Also `--log-format`.",
    )
    metrics_internal_topics: bool = key(
        ConfigType.BOOLEAN,
        False,
        update=Update.CLUSTER_WIDE,
        doc="Headrace only. List internal topics (`__consumer_offsets` and the like) in `/metrics` "
        "too, topic by topic and partition by partition.",
    )
    request_log_slow_ms: int = key(
        ConfigType.LONG,
        1_000,
        Range(-1),
        update=Update.CLUSTER_WIDE,
        doc="Headrace only. A request that takes longer is logged, unless it waits by design (long "
        "polls, joins of a group); -1: none is.",
    )
