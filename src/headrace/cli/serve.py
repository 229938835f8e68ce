"""`headrace serve`: one broker in this process, until it is told to stop."""

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import parse_pairs
from headrace.core.errors import StartupRefused

if TYPE_CHECKING:
    from headrace.core.broker_configs import BrokerConfig

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def register(app: typer.Typer) -> None:
    app.command()(serve)


def serve(
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", "-d", metavar="DIR", help="Where records are kept.")
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
    config: Annotated[
        str | None, typer.Option("--config", "-c", metavar="FILE", help="A TOML file of keys.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="One key; may be repeated."),
    ] = None,
    log_level: Annotated[str, typer.Option(metavar="debug|info|warning|error")] = "info",
) -> None:
    """Run a broker. Ctrl-C or SIGTERM stops it cleanly."""
    from headrace.node.config import load

    logging.basicConfig(
        level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    overrides = parse_pairs(settings, "--set")
    if data_dir is not None:
        overrides["log.dirs"] = data_dir
    if listen:
        overrides["listeners"] = ",".join(
            address if "://" in address else f"PLAINTEXT://{address}" for address in listen
        )
    broker_config = load(config, overrides=overrides)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(broker_config))


async def _serve(config: "BrokerConfig") -> None:
    from headrace.node import real_node

    stopping = asyncio.Event()
    _on_stop_signals(stopping.set)
    node = real_node(config)
    try:
        await node.start()
    except OSError as error:
        await node.stop()
        raise StartupRefused(
            f"cannot start: {error}", hint="is the address in use, or the directory not writable?"
        ) from error
    addresses = ", ".join(
        f"{name}://{host}:{port}" for name, (host, port) in node.addresses.items()
    )
    # What start-up built stays for good: the collector need not look at it ever again.
    gc.collect()
    gc.freeze()
    print(
        f"headrace: ready on {addresses} (node {config.node_id}, data in {config.data_directory})",
        file=sys.stderr,
        flush=True,
    )
    await stopping.wait()
    logger.info("stopping")
    await node.stop()


def _on_stop_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows: its loops know no signals.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, else the platform's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
