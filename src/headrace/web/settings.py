"""What the HTTP API may be told: its address, whom it answers and how much it holds."""

from dataclasses import dataclass

from headrace.core.keys.http import HttpKeys


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Limits are for the whole listener, times for each connection or consumer instance.

    `allowed_hosts` are names this listener is reached by beside `localhost` and its own address;
    `allowed_origins` are pages of other origins that may call it from a browser.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    body_bytes_max: int = 4 * 1024 * 1024
    held_bytes_max: int = 64 * 1024 * 1024
    """Bodies, and unfinished lines of streams, of all connections together."""
    body_bytes_per_second_min: int = 32 * 1024
    """A body that is not a stream has `request_timeout_ms`, and a second for so many bytes."""
    header_bytes_max: int = 32 * 1024
    connections_max: int = 4096
    streams_max: int = 2048
    consumer_instances_max: int = 1000
    consumer_instance_timeout_ms: int = 300_000
    request_timeout_ms: int = 30_000
    """How long a client may take to send its headers, or to send on in the middle of a body."""
    idle_timeout_ms: int = 75_000
    """How long a connection without a request is kept."""
    stall_timeout_ms: int = 60_000
    """How long a client may leave an answer unread, with the connection full."""
    stream_growth_ms: int = 30_000
    """How often a stream looks whether its topic has more partitions by now."""
    stream_ping_ms: int = 15_000
    """How often a silent event stream says that it is alive."""


def settings_of(config: HttpKeys, address: tuple[str, int]) -> WebSettings:
    """What a broker's config says about its HTTP API."""
    host, port = address
    return WebSettings(
        host=host,
        port=port,
        allowed_hosts=config.http_allowed_hosts,
        allowed_origins=config.http_allowed_origins,
        body_bytes_max=config.http_max_body_bytes,
        connections_max=config.http_max_connections,
        streams_max=config.http_max_streams,
        consumer_instances_max=config.http_max_consumer_instances,
        consumer_instance_timeout_ms=config.http_consumer_instance_timeout_ms,
    )
