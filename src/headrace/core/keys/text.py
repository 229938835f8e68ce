"""The text listener: its address, and how much one client may ask of it."""

from dataclasses import dataclass

from headrace.core.config_keys import INT_MAX, ConfigType, Range, key
from headrace.core.keys.http import ListenerAddress


@dataclass(frozen=True, kw_only=True, eq=False)
class TextKeys:
    """Headrace only, all of them."""

    text_listener: str = key(
        ConfigType.STRING,
        "127.0.0.1:7070",
        ListenerAddress(),
        doc="Headrace only. Address of the text listener; `off`: none. Also `--text`.",
    )
    text_max_connections: int = key(
        ConfigType.INT, 500, Range(1), doc="Headrace only. Clients of the text listener at most."
    )
    text_idle_timeout_ms: int = key(
        ConfigType.INT,
        600_000,
        Range(100),
        doc="Headrace only. A client of the text listener that neither asks nor reads for so long "
        "is cut off.",
    )
    text_max_line_bytes: int = key(
        ConfigType.INT,
        64 * 1024,
        Range(64, INT_MAX),
        doc="Headrace only. Longest line that the text listener reads; a longer one ends "
        "the connection.",
    )
    text_max_payload_bytes: int = key(
        ConfigType.INT,
        1_000_000,
        Range(1, INT_MAX),
        doc="Headrace only. Largest payload that the text listener takes with LENGTH.",
    )
