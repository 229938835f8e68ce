"""`headrace archive replay PATH --to TOPIC`: an archive's records back into a topic."""

from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.archive.needs import require_arrow
from headrace.cli.options import DEFAULT_BOOTSTRAP, Bootstrap, Output, connect, wants_json
from headrace.cli.output import print_json


def register(group: typer.Typer) -> None:
    group.command()(replay)


def replay(
    path: Annotated[Path, typer.Argument(help="A Delta table or a directory of Parquet files.")],
    to: Annotated[str, typer.Option("--to", help="The topic to write to.", show_default=False)],
    topic: Annotated[
        str | None, typer.Option("--topic", help="Which topic, if the archive has several.")
    ] = None,
    by_key: Annotated[
        bool,
        typer.Option(
            "--by-key", help="Let keys choose partitions, rather than keep their numbers."
        ),
    ] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    output: Output = "table",
) -> None:
    """Write archived records to a topic, in the order of their offsets and each of them once.

    Keys, values, headers and times stay as they were. Running it again writes all of them again.
    """
    as_json = wants_json(output)
    require_arrow()
    from headrace.spark.archive import replay as send

    with connect(bootstrap) as client:
        count = send(path, client.settings, to=to, topic=topic, by_key=by_key)
    if as_json:
        print_json({"topic": to, "records": count})
    else:
        print(f"replayed {count} records into {to}")
