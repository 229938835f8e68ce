"""Where the text listener listens, and how much one client may ask of it."""

from dataclasses import dataclass

from headrace.core.keys.text import TextKeys

DEFAULT_PORT = 7070


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Bounds of the listener. A client that breaks one is told so and, where it must be, cut off.

    `held_bytes_max` is for what has arrived in part, over all clients.
    """

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    connections_max: int = 500
    idle_seconds: float = 600
    line_bytes_max: int = 64 * 1024
    payload_bytes_max: int = 1_000_000
    held_bytes_max: int = 64 * 1024 * 1024


def settings_of(config: TextKeys, address: tuple[str, int]) -> TextSettings:
    """What a broker's config says about its text listener."""
    host, port = address
    return TextSettings(
        host=host,
        port=port,
        connections_max=config.text_max_connections,
        idle_seconds=config.text_idle_timeout_ms / 1000,
        line_bytes_max=config.text_max_line_bytes,
        payload_bytes_max=config.text_max_payload_bytes,
    )
