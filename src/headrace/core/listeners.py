"""Named listeners: what is bound, what is advertised to clients, and which security each speaks."""

import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.core.errors import InvalidConfig

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
WILDCARDS = ("", "0.0.0.0", "::")

_ENDPOINT = re.compile(r"([A-Za-z0-9_-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]]*)):([0-9]+)")


class ListenerType(IntEnum):
    """Whom a listener is for: each kind serves APIs of its own."""

    BROKER = 0
    CONTROLLER = 1


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


class ListenerConfig(NamedTuple):
    """One listener: where it is bound, and where clients should go (None: as bound)."""

    name: str
    security_protocol: str
    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None

    @property
    def is_wildcard(self) -> bool:
        return self.host in WILDCARDS


def parse_endpoint(key: str, text: str) -> Endpoint:
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match[4]) > 65535:
        raise InvalidConfig(f"{key}: cannot read {text!r}, expected NAME://HOST:PORT")
    return Endpoint(match[1].upper(), match[2] or match[3], int(match[4]))


def parse_listener_address(key: str, text: str) -> tuple[str, int] | None:
    """Host and port of the HTTP or text listener (port 0: any free one), or None for `off`."""
    if text.strip().lower() == "off":
        return None
    return parse_address(key, text, "HOST:PORT, or off")


def parse_address(key: str, text: str, expected: str = "HOST:PORT") -> tuple[str, int]:
    match = _ENDPOINT.fullmatch(f"listener://{text.strip()}")
    if match is None or int(match[4]) > 65535:
        raise InvalidConfig(f"{key}: cannot read {text!r}, expected {expected}")
    return match[2] or match[3], int(match[4])


def parse_protocol_map(text: str) -> dict[str, str]:
    protocols = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = pair.partition(":")
        if not colon or protocol.upper() not in SECURITY_PROTOCOLS:
            raise InvalidConfig(
                f"listener.security.protocol.map: cannot read {pair!r}, expected NAME:PROTOCOL "
                f"with one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.upper()] = protocol.upper()
    return protocols


def parse_listeners(
    listeners: Sequence[str], advertised: Sequence[str], protocol_map: str
) -> tuple[ListenerConfig, ...]:
    """Join the three keys into listeners; names must be unique, mapped, and served."""
    bound = [parse_endpoint("listeners", text) for text in listeners]
    advertised_endpoints = [parse_endpoint("advertised.listeners", text) for text in advertised]
    protocols = parse_protocol_map(protocol_map)
    _check_names("listeners", bound)
    _check_names("advertised.listeners", advertised_endpoints)
    if not bound:
        raise InvalidConfig("listeners: at least one listener is needed")
    for endpoint in advertised_endpoints:
        if endpoint.host in WILDCARDS:
            raise InvalidConfig(
                f"advertised.listeners: {endpoint} is no address a client can connect to"
            )
    unknown = {endpoint.name for endpoint in advertised_endpoints} - {
        endpoint.name for endpoint in bound
    }
    if unknown:
        raise InvalidConfig(f"advertised.listeners: no listener is named {', '.join(unknown)}")
    by_name = {endpoint.name: endpoint for endpoint in advertised_endpoints}
    return tuple(_join(endpoint, protocols, by_name) for endpoint in bound)


def _join(
    bound: Endpoint, protocols: dict[str, str], advertised_by_name: dict[str, Endpoint]
) -> ListenerConfig:
    protocol = protocols.get(bound.name)
    if protocol is None:
        raise InvalidConfig(
            f"listeners: {bound.name} has no entry in listener.security.protocol.map"
        )
    if protocol != "PLAINTEXT":
        raise InvalidConfig(f"listeners: {bound.name} is mapped to {protocol}, which is not served")
    advertised = advertised_by_name.get(bound.name)
    return ListenerConfig(
        bound.name,
        protocol,
        bound.host,
        bound.port,
        advertised.host if advertised else None,
        (advertised.port or None) if advertised else None,
    )


def _check_names(key: str, endpoints: Sequence[Endpoint]) -> None:
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise InvalidConfig(f"{key}: each listener name may be used once")
