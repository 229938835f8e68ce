"""`headrace bench produce|consume|latency`: how fast is this broker, from here?

Quick figures with our own client, against any Kafka broker: a module per command (`produce`,
`consume`, `latency`), and in `measurement` what they share. The side by side with Apache Kafka is
`make bench` in the checkout.
"""

import typer

from headrace.cli.bench import consume, latency, produce


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Measure a broker with this client.", no_args_is_help=True)
    for command in (produce, consume, latency):
        command.register(group)
    app.add_typer(group, name="bench")
