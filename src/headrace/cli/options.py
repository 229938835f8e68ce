"""Options that several commands share, and the client they lead to."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.core.errors import InvalidConfig
from headrace.core.units import plain_number

if TYPE_CHECKING:
    from headrace.client import Client, ClientSettings

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
CONNECT_TIMEOUT_MS = 3_000

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        envvar="HEADRACE_BOOTSTRAP",
        help="A broker of the cluster.",
        show_default=True,
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="table|json", help="For people, or for programs."),
]
Configs = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        help="A topic config, as retention.ms=1h; may be repeated.",
    ),
]
Topic = Annotated[str, typer.Argument(help="Name of the topic.", show_default=False)]


def connect(bootstrap: str) -> "Client":
    """A client for a short-lived command: it gives up early rather than wait for a dead broker."""
    from headrace.client import BrokerUnreachable, Client

    settings = replace(
        client_settings(bootstrap), call_timeout_ms=15_000, connect_timeout_ms=CONNECT_TIMEOUT_MS
    )
    client = Client(settings)
    try:
        # One attempt: where nobody listens, or nobody answers, calls would go on trying.
        client.connect()
    except BrokerUnreachable as error:
        client.close()
        raise BrokerUnreachable(
            str(error),
            hint="start one with `headrace serve`, or name another with --bootstrap HOST:PORT",
        ) from error
    except BaseException:
        client.close()
        raise
    return client


def client_settings(bootstrap: str) -> "ClientSettings":
    """Settings for the address given; one that cannot be read is wrong usage."""
    from headrace.client import ClientSettings

    try:
        return ClientSettings(bootstrap, client_id="headrace-cli")
    except InvalidConfig as error:
        raise typer.BadParameter(str(error), param_hint="--bootstrap") from error


def wants_json(output: str) -> bool:
    """Whether the answer is for a program."""
    if output not in ("table", "json"):
        raise typer.BadParameter(f"{output!r} is neither table nor json", param_hint="--output")
    return output == "json"


def parse_pairs(
    pairs: list[str] | None, option: str, example: str = "retention.ms=60000"
) -> dict[str, str]:
    """`KEY=VALUE` words as a mapping; later ones win."""
    parsed = {}
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(
                f"{pair!r}: expected KEY=VALUE, as {example}", param_hint=option
            )
        parsed[name.strip()] = value
    return parsed


def parse_configs(pairs: list[str] | None, option: str) -> dict[str, str]:
    """Topic configs; `retention.ms=1h` and `retention.bytes=10MB` become numbers."""
    return {name: plain_number(name, text) for name, text in parse_pairs(pairs, option).items()}
