"""`headrace serve`: one broker in this process, until it is told to stop."""

import asyncio
import contextlib
import errno
import gc
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from headrace import __version__
from headrace.cli.addresses import kafka_listener, listener_address, listener_hint, require_bindable
from headrace.cli.options import parse_pairs
from headrace.cli.process import announce, loop_factory, on_stop_signals
from headrace.core.errors import StartupRefused
from headrace.core.keys.logging import FORMATS, LEVELS
from headrace.core.listeners import Endpoint

if TYPE_CHECKING:
    from headrace.core.broker_configs import BrokerConfig
    from headrace.node.node import Node

logger = logging.getLogger(__name__)

EXTRA_LISTENER_KEYS = ("http.listener", "text.listener")
# Whoever waited for the broker comes now; what is loaded beside them would cost them time.
FIRST_CLIENTS_SECONDS = 0.5


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir",
            "-d",
            metavar="DIR",
            help="Where records are kept (log.dirs); ./headrace-data by default.",
        ),
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option(
            "--listen",
            "-l",
            metavar="[NAME://]HOST:PORT",
            help="Address to listen on, loopback by default; may be repeated.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT|off", help="The HTTP API; 127.0.0.1:8080 by default."),
    ] = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT|off", help="The text listener; 127.0.0.1:7070 by default."),
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", "-c", metavar="FILE", help="A TOML file of keys.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="One key; may be repeated."),
    ] = None,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="debug|info|warning|error",
            help="From which level on to log (logging.level); info by default.",
        ),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option(
            metavar="text|json",
            help="Log lines for people or for programs (logging.format); text by default.",
        ),
    ] = None,
) -> None:
    """Run a broker. Ctrl-C or SIGTERM stops it cleanly."""
    from headrace.node.config import load
    from headrace.node.log_lines import configure

    overrides = parse_pairs(settings, "--set", example="log.retention.hours=24")
    _take_choice(overrides, "logging.level", "--log-level", log_level, LEVELS)
    _take_choice(overrides, "logging.format", "--log-format", log_format, FORMATS)
    configure(["info"], log_format or "text")  # for what is found wrong while loading
    if data_dir is not None:
        overrides["log.dirs"] = data_dir
    if http is not None:
        overrides["http.listener"] = listener_address(http, "--http")
    if text is not None:
        overrides["text.listener"] = listener_address(text, "--text")
    if listen:
        overrides["listeners"] = ",".join(kafka_listener(address) for address in listen)
    broker_config = load(config, overrides=overrides)
    configure(broker_config.logging_level, broker_config.logging_format)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(broker_config))


async def _serve(config: "BrokerConfig") -> None:
    logger.info("starting: version=%s settings=%s", __version__, _given(config) or None)
    stopping = asyncio.Event()
    on_stop_signals(stopping.set)
    require_bindable(
        {key: str(config.static[key]) for key in EXTRA_LISTENER_KEYS if key in config.static}
    )
    # What start-up builds is there to stay: looking for garbage in it is lost time, now or later.
    gc.disable()
    try:
        node = await _start(config)
        gc.freeze()
    finally:
        gc.enable()
    addresses = ", ".join(
        str(Endpoint(name, host, port)) for name, (host, port) in node.addresses.items()
    )
    announce(
        f"ready on {addresses} (node {config.node_id}, data in {config.data_directory})",
        config.logging_format,
    )
    await _open_extra_listeners(node, config.logging_format)
    if not await _is_set_within(stopping, FIRST_CLIENTS_SECONDS):
        # By a thread, rather than by the first member of a group while everybody waits.
        await asyncio.to_thread(import_module, "headrace.groups.group_coordinator")
        gc.collect()
        gc.freeze()
    await stopping.wait()
    logger.info("stopping")
    await node.stop()
    logger.info("stopped")


def _given(config: "BrokerConfig") -> str:
    """The settings that differ from their defaults, as `KEY=VALUE`."""
    from headrace.core.broker_configs import BROKER_KEYS
    from headrace.core.config_keys import format_value

    typed = (
        (known.name, getattr(config, known.attribute), known) for known in BROKER_KEYS.values()
    )
    return " ".join(
        f"{name}={format_value(value)}" for name, value, known in typed if value != known.default
    )


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _start(config: "BrokerConfig") -> "Node":
    from headrace.node import real_node
    from headrace.node.network import AddressUnusable

    node = real_node(config)
    try:
        await node.start()
    except OSError as error:
        await node.stop()
        if not isinstance(error, AddressUnusable):
            advice = "is the data directory writable?"
            raise StartupRefused(f"cannot start: {error}", hint=advice) from error
        advice = "choose another address with --listen"
        if error.errno == errno.EADDRINUSE:
            advice = f"stop it, or {advice}"
        raise StartupRefused(f"cannot start: listeners: {error.strerror}", hint=advice) from error
    return node


async def _open_extra_listeners(node: "Node", form: str) -> None:
    """The listeners beside Kafka's, and where they are."""
    from headrace.node.extra_listeners import ListenerBindFailed

    try:
        await node.open_extra_listeners()
    except ListenerBindFailed as error:
        await node.stop()
        message = f"cannot open a listener: {error.strerror}"
        raise StartupRefused(message, hint=listener_hint(error.key)) from error
    assert node.extra_listeners is not None
    urls = []
    if node.extra_listeners.http is not None:
        host, port = node.extra_listeners.http
        urls.append(f"http://{host}:{port}/docs")
    if node.extra_listeners.text is not None:
        host, port = node.extra_listeners.text
        urls.append(f"nc {host} {port}")
    if urls:
        announce(", ".join(urls), form)


def _take_choice(
    overrides: dict[str, str], key: str, option: str, word: str | None, known: Sequence[str]
) -> None:
    """An option that stands for a key, and knows what may be chosen."""
    if word is not None:
        if word.lower() not in known:
            raise typer.BadParameter(f"{word!r} is not {', '.join(known)}", param_hint=option)
        overrides[key] = word.lower()
