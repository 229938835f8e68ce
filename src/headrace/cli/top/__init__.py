"""`headrace top`: what a cluster is doing, live in the terminal.

`cluster_sample` asks the brokers, `scraper` the metrics of the HTTP API if there is one, `rates`
makes figures per second of two looks, `screen` draws them.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json, print_line
from headrace.cli.top.rates import TopView, compare
from headrace.core.errors import HeadraceError

INTERVAL_SECONDS_MIN = 0.1


def register(app: typer.Typer) -> None:
    app.command()(top)


def top(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    metrics: Annotated[
        str,
        typer.Option(
            metavar="URL|auto|off",
            help="Metrics of the HTTP API; auto tries port 8080 of the broker's host.",
        ),
    ] = "auto",
    interval: Annotated[
        float, typer.Option("--interval", "-i", metavar="SECONDS", help="Time between two looks.")
    ] = 1.0,
    rows: Annotated[
        int, typer.Option("--rows", "-n", min=1, help="Topics and groups shown of each.")
    ] = 15,
    once: Annotated[bool, typer.Option("--once", help="Show one picture and end.")] = False,
    output: Output = "table",
) -> None:
    """Show rates, topics and the lag of groups, refreshed every second. Ctrl-C ends it.

    Works with any Kafka broker; what goes out, requests and connections are known only where the
    metrics of a Headrace HTTP API are found. With --output json there is one line per look.
    """
    as_json = wants_json(output)
    if interval < INTERVAL_SECONDS_MIN:
        raise typer.BadParameter(
            f"{interval} is less than {INTERVAL_SECONDS_MIN} seconds", param_hint="--interval"
        )
    pictures = _views(bootstrap, metrics, interval, keep_trying=not once)
    try:
        if once:
            picture = next(pictures)
            if as_json:
                print_json(asdict(picture))
            else:
                _print(picture, rows)
        elif as_json:
            for picture in pictures:
                print_line(asdict(picture))
        else:
            _show(pictures, rows)
    except KeyboardInterrupt:
        return  # the way to end it


def _views(
    bootstrap: str, metrics: str, interval: float, *, keep_trying: bool
) -> Iterator[TopView]:
    """A picture per interval; once there is one, a broker that is gone is waited for."""
    from headrace.cli.top.cluster_sample import sample_cluster
    from headrace.cli.top.scraper import Scraper, url_for

    with connect(bootstrap) as client:
        scraper = Scraper(url_for(metrics, bootstrap), required=metrics not in ("auto", "off"))
        before = sample_cluster(client, scraper)
        view: TopView | None = None
        while True:
            time.sleep(interval)
            try:
                now = sample_cluster(client, scraper)
            except HeadraceError as error:
                if view is None or not keep_trying:
                    raise
                view.trouble = str(error)
            else:
                view = compare(before, now)
                before = now
            yield view


def _print(view: TopView, rows: int) -> None:
    import sys

    from rich.console import Console

    from headrace.cli.output import UNFOLDED
    from headrace.cli.top.screen import render

    width = None if sys.stdout.isatty() else UNFOLDED
    Console(highlight=False, width=width).print(render(view, rows))


def _show(views: Iterator[TopView], rows: int) -> None:
    from rich.console import Console
    from rich.live import Live

    from headrace.cli.top.screen import render

    console = Console(highlight=False)
    if not console.is_terminal:
        for picture in views:
            _print(picture, rows)
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        live.update("asking the broker…", refresh=True)
        for picture in views:
            # The figures above and the headings take about a dozen lines.
            fitting = max(1, min(rows, (console.height - 12) // 2))
            live.update(render(picture, fitting), refresh=True)
