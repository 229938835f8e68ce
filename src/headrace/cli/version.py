"""`headrace version`: which Headrace, which Python, which Kafka it stands for."""

import platform

import typer

from headrace import __version__
from headrace.cli.options import Output, wants_json
from headrace.cli.output import print_json

KAFKA = "4.3"


def register(app: typer.Typer) -> None:
    app.command()(version)


def version(output: Output = "table") -> None:
    """Show the version of Headrace, of Python, and of the Kafka protocol it speaks."""
    python = platform.python_version()
    if wants_json(output):
        print_json({"headrace": __version__, "kafka": KAFKA, "python": python})
    else:
        print(f"headrace {__version__} (Kafka {KAFKA} protocol, Python {python})")
