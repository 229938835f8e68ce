"""`headrace gateway`: the HTTP API and the text protocol as a process, for a cluster elsewhere."""

import asyncio
import logging
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.addresses import listener_address, require_bindable
from headrace.cli.options import DEFAULT_BOOTSTRAP, client_settings, parse_pairs
from headrace.cli.process import announce, loop_factory, on_stop_signals
from headrace.core.errors import StartupRefused
from headrace.core.listeners import parse_listener_address

if TYPE_CHECKING:
    from headrace.client import ClientSettings
    from headrace.core.broker_configs import BrokerConfig

logger = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    app.command("gateway")(gateway)


def gateway(
    bootstrap: Annotated[
        str,
        typer.Option(
            "--bootstrap-servers",
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            envvar="HEADRACE_BOOTSTRAP",
            help="Brokers of the cluster.",
            show_default=True,
        ),
    ] = DEFAULT_BOOTSTRAP,
    http: Annotated[
        str, typer.Option(metavar="HOST:PORT|off", help="Where the HTTP API listens.")
    ] = "127.0.0.1:8080",
    text: Annotated[
        str, typer.Option(metavar="HOST:PORT|off", help="Where the text protocol listens.")
    ] = "127.0.0.1:7070",
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=600,
            metavar="SECONDS",
            help="How long a request waits for brokers that do not answer.",
        ),
    ] = 5,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            "-s",
            metavar="KEY=VALUE",
            help="A key that begins with http., text. or logging.",
        ),
    ] = None,
) -> None:
    """Serve HTTP and text for a cluster elsewhere. Ctrl-C or SIGTERM stops it cleanly."""
    from headrace.core.broker_configs import BrokerConfig
    from headrace.node.log_lines import configure

    given = parse_pairs(settings, "--set", example="http.max.connections=100")
    for key in given:
        if not key.startswith(("http.", "text.", "logging.")):
            raise typer.BadParameter(
                f"{key!r} is not about the HTTP or text listener", param_hint="--set"
            )
    given |= {
        "http.listener": listener_address(http, "--http"),
        "text.listener": listener_address(text, "--text"),
    }
    configure(["info"], given.get("logging.format", "text"))  # for old names of keys
    config = BrokerConfig.from_static(given)
    configure(config.logging_level, config.logging_format)
    if http.strip().lower() == text.strip().lower() == "off":
        raise typer.BadParameter("both listeners are off", param_hint="--http")
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_run(_with_timeout(client_settings(bootstrap), timeout), config))


def _with_timeout(settings: "ClientSettings", seconds: float) -> "ClientSettings":
    """Whoever asks wants to be told soon that no broker answers."""
    limit_ms = round(seconds * 1000)
    return replace(
        settings,
        call_timeout_ms=limit_ms,
        request_timeout_ms=limit_ms,
        connect_timeout_ms=limit_ms,
    )


async def _run(settings: "ClientSettings", config: "BrokerConfig") -> None:
    stopping = asyncio.Event()
    on_stop_signals(stopping.set)
    require_bindable({"http.listener": config.http_listener, "text.listener": config.text_listener})
    async with AsyncExitStack() as listeners:
        try:
            addresses = [
                *await _open_http(settings, config, listeners),
                *await _open_text(settings, config, listeners),
            ]
        except OSError as error:
            hint = "choose another address with --http or --text, or off"
            raise StartupRefused(f"cannot open a listener: {error}", hint=hint) from error
        announce(f"listening on {', '.join(addresses)}", config.logging_format)
        await stopping.wait()
        logger.info("stopping")
    logger.info("stopped")


async def _open_http(
    settings: "ClientSettings", config: "BrokerConfig", listeners: AsyncExitStack
) -> list[str]:
    address = parse_listener_address("http.listener", config.http_listener)
    if address is None:
        return []
    from headrace.client import AsyncClient
    from headrace.gateway import Gateway
    from headrace.node.system import ThreadExecutor
    from headrace.web.process_metrics import ProcessMetrics
    from headrace.web.server import serve
    from headrace.web.settings import settings_of

    gateway = await listeners.enter_async_context(Gateway(AsyncClient(settings)))
    executor = ThreadExecutor()
    listeners.callback(executor.close)
    server = await serve(
        gateway,
        settings_of(config, address),
        executor=executor,
        sources=[ProcessMetrics(gateway.client.clock)],
    )
    listeners.push_async_callback(server.close)
    return [f"http://{server.host}:{server.port}"]


async def _open_text(
    settings: "ClientSettings", config: "BrokerConfig", listeners: AsyncExitStack
) -> list[str]:
    address = parse_listener_address("text.listener", config.text_listener)
    if address is None:
        return []
    from headrace.client import AsyncClient
    from headrace.gateway import Gateway, GatewayLimits
    from headrace.text.server import serve
    from headrace.text.settings import settings_of

    # Over HTTP a request says itself how long writing may take.
    limits = GatewayLimits(produce_ms=settings.call_timeout_ms)
    gateway = await listeners.enter_async_context(Gateway(AsyncClient(settings), limits=limits))
    server = await serve(gateway, settings_of(config, address))
    listeners.push_async_callback(server.close)
    return [f"text://{server.host}:{server.port}"]
