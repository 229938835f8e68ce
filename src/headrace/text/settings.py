"""Where the text door listens, and how much one client may ask of it."""

from dataclasses import dataclass

DEFAULT_PORT = 7070


@dataclass(frozen=True, slots=True)
class TextSettings:
    """Bounds of the door. A client that breaks one is told so and, where it must be, cut off."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    connections_max: int = 500
    idle_seconds: float = 600
    line_bytes_max: int = 64 * 1024
    payload_bytes_max: int = 1_000_000
