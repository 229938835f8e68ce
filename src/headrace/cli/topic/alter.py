"""`headrace topic alter NAME`."""

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
    group.command()(alter)


def alter(
    topic: Topic,
    config: Configs = None,
    unset: Annotated[
        list[str] | None,
        typer.Option("--unset", "-u", metavar="KEY", help="Back to the default; may be repeated."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", help="Grow to this many partitions.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Change a topic's configs or add partitions; effective at once."""
    from headrace.client import (
        ConfigChange,
        ConfigOperation,
        ConfigResource,
        ConfigResourceType,
    )

    as_json = wants_json(output)
    wanted = parse_configs(config, "--config")
    changes = [ConfigChange(name, value) for name, value in wanted.items()]
    changes += [ConfigChange(name, None, ConfigOperation.DELETE) for name in unset or ()]
    if not changes and partitions is None:
        raise typer.BadParameter("nothing to change: give --config, --unset or --partitions")
    with connect(bootstrap) as client:
        if changes:
            client.admin.alter_configs({ConfigResource(ConfigResourceType.TOPIC, topic): changes})
        if partitions is not None:
            client.admin.create_partitions({topic: partitions})
    if as_json:
        print_json({"topic": topic, "set": wanted, "unset": unset or [], "partitions": partitions})
    else:
        print(f"changed {topic}")
