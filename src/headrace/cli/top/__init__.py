"""`headrace top`: what a cluster is doing, live in the terminal.

`looking` asks the brokers, `scraping` the metrics of the HTTP door if there is one, `rates` makes
figures per second of two looks, `screen` draws them.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json, print_line
from headrace.cli.top.rates import Picture, compare
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
            help="Metrics of the HTTP door; auto tries port 8080 of the broker's host.",
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
    metrics of a Headrace HTTP door are found. With --output json there is one line per look.
    """
    as_json = wants_json(output)
    if interval < INTERVAL_SECONDS_MIN:
        raise typer.BadParameter(
            f"{interval} is less than {INTERVAL_SECONDS_MIN} seconds", param_hint="--interval"
        )
    pictures = _pictures(bootstrap, metrics, interval, keep_trying=not once)
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


def _pictures(
    bootstrap: str, metrics: str, interval: float, *, keep_trying: bool
) -> Iterator[Picture]:
    """A picture per interval; once there is one, a broker that is gone is waited for."""
    from headrace.cli.top.looking import look
    from headrace.cli.top.scraping import Scraper, url_for

    with connect(bootstrap) as client:
        scraper = Scraper(url_for(metrics, bootstrap), required=metrics not in ("auto", "off"))
        before = look(client, scraper)
        picture: Picture | None = None
        while True:
            time.sleep(interval)
            try:
                now = look(client, scraper)
            except HeadraceError as error:
                if picture is None or not keep_trying:
                    raise
                picture.trouble = str(error)
            else:
                picture = compare(before, now)
                before = now
            yield picture


def _print(picture: Picture, rows: int) -> None:
    import sys

    from rich.console import Console

    from headrace.cli.output import UNFOLDED
    from headrace.cli.top.screen import draw

    width = None if sys.stdout.isatty() else UNFOLDED
    Console(highlight=False, width=width).print(draw(picture, rows))


def _show(pictures: Iterator[Picture], rows: int) -> None:
    from rich.console import Console
    from rich.live import Live

    from headrace.cli.top.screen import draw

    console = Console(highlight=False)
    if not console.is_terminal:
        for picture in pictures:
            _print(picture, rows)
        return
    with Live(console=console, screen=True, auto_refresh=False) as live:
        live.update("asking the broker…", refresh=True)
        for picture in pictures:
            # The figures above and the headings take about a dozen lines.
            fitting = max(1, min(rows, (console.height - 12) // 2))
            live.update(draw(picture, fitting), refresh=True)
