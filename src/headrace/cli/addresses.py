"""Addresses of the command line: read before anything starts, and tried where they were named."""

import re
import socket
from collections.abc import Mapping

import typer

from headrace.core.errors import InvalidConfig, StartupRefused
from headrace.core.listeners import parse_endpoint, parse_listener_address
from headrace.node.network import AddressUnusable

_PORT_MAX = 65535


def kafka_listener(address: str) -> str:
    """An address of `--listen` as Kafka's `listeners` wants it."""
    _check_port(address, "--listen")
    named = address if "://" in address else f"PLAINTEXT://{address}"
    try:
        parse_endpoint("--listen", named)
    except InvalidConfig as error:
        raise typer.BadParameter(
            f"{address!r}: expected HOST:PORT or NAME://HOST:PORT", param_hint="--listen"
        ) from error
    return named


def listener_address(address: str, option: str) -> str:
    """An address of `--http` or `--text`."""
    _check_port(address, option)
    try:
        parse_listener_address(option, address)
    except InvalidConfig as error:
        raise typer.BadParameter(
            f"{address!r}: expected HOST:PORT, or off", param_hint=option
        ) from error
    return address


def _check_port(address: str, option: str) -> None:
    port = re.search(r":(\d+)$", address.strip())
    if port and int(port[1]) > _PORT_MAX:
        raise typer.BadParameter(
            f"{address!r}: the port must be 0 to {_PORT_MAX}", param_hint=option
        )


def require_bindable(addresses: Mapping[str, str]) -> None:
    """Refuse to start where a listener (its key, its address) cannot be opened.

    They open after the Kafka listener: who was told that the broker is ready should not see it
    end a moment later over an address.
    """
    for key, address in addresses.items():
        place = parse_listener_address(key, address)
        if place is None:
            continue
        try:
            _bind_once(*place)
        except OSError as error:
            reason = AddressUnusable(error, *place).strerror
            raise StartupRefused(
                f"cannot open a listener: {key}: {reason}", hint=listener_hint(key)
            ) from error


def _bind_once(host: str, port: int) -> None:
    flags = socket.AI_PASSIVE
    candidates = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=flags)
    for family, kind, protocol, _, address in candidates:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
            probe.listen(1)


def listener_hint(key: str) -> str:
    """What to do about a listener that cannot be opened."""
    option = f"--{key.partition('.')[0]}"
    return f"choose another address with {option}, or none with {option} off"
