"""The HTTP listener: its address, the clients it serves, how much it holds."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.core.config_keys import INT_MAX, ConfigType, Range, key
from headrace.core.errors import InvalidConfig
from headrace.core.listeners import parse_listener_address


class ListenerAddress(NamedTuple):
    """An address to listen on, or the word for none."""

    def problem(self, value: Any) -> str | None:
        try:
            parse_listener_address("", value)
        except InvalidConfig:
            return "expected HOST:PORT, or off"
        return None

    def __str__(self) -> str:
        return "HOST:PORT or off"


@dataclass(frozen=True, kw_only=True, eq=False)
class HttpKeys:
    """Headrace only, all of them."""

    http_listener: str = key(
        ConfigType.STRING,
        "127.0.0.1:8080",
        ListenerAddress(),
        doc="Headrace only. Address of the HTTP listener; `off`: none. Also `--http`.",
    )
    http_allowed_hosts: tuple[str, ...] = key(
        ConfigType.LIST,
        (),
        doc="Headrace only. Names by which the HTTP listener is reached, beside localhost and its "
        "address; `*`: any. Other names are refused, since they may be a foreign page's doing.",
    )
    http_allowed_origins: tuple[str, ...] = key(
        ConfigType.LIST,
        (),
        doc="Headrace only. Origins whose pages may call the HTTP listener from a browser, as "
        "`http://localhost:3000`; `*`: any.",
    )
    http_max_body_bytes: int = key(
        ConfigType.INT,
        4 * 1024 * 1024,
        Range(1, INT_MAX),
        doc="Headrace only. Largest body of an HTTP request; streams of lines may be longer.",
    )
    http_max_connections: int = key(
        ConfigType.INT, 4096, Range(1), doc="Headrace only. Open HTTP connections at most."
    )
    http_max_streams: int = key(
        ConfigType.INT, 2048, Range(0), doc="Headrace only. Open event streams at most."
    )
    http_max_consumer_instances: int = key(
        ConfigType.INT, 1000, Range(0), doc="Headrace only. Consumer instances at most."
    )
    http_consumer_instance_timeout_ms: int = key(
        ConfigType.INT,
        300_000,
        Range(100),
        doc="Headrace only. A consumer instance that is not used for so long is closed.",
    )
