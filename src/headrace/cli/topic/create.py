"""`headrace topic create NAME`."""

from typing import Annotated

import typer

from headrace.cli.options import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    Configs,
    Output,
    Topic,
    connect,
    parse_configs,
    wants_json,
)
from headrace.cli.output import print_json


def register(group: typer.Typer) -> None:
    group.command()(create)


def create(
    topic: Topic,
    partitions: Annotated[
        int, typer.Option("--partitions", "-p", help="How many; -1: the broker's default.")
    ] = -1,
    replication_factor: Annotated[
        int, typer.Option("--replication-factor", "-r", help="Copies; -1: the broker's default.")
    ] = -1,
    config: Configs = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="An existing topic is no error.")
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Create a topic."""
    from headrace.client import NewTopic
    from headrace.core.errors import ApiError, ErrorCode

    as_json = wants_json(output)
    wanted = NewTopic(topic, partitions, replication_factor, parse_configs(config, "--config"))
    created = True
    with connect(bootstrap) as client:
        try:
            client.admin.create_topics([wanted])
        except ApiError as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            created = False
    if as_json:
        print_json({"topic": topic, "created": created})
    else:
        print(f"created {topic}" if created else f"{topic} exists already")
