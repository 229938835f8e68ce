"""Write the pages of docs/ that are made from code: configuration, protocol support, commands.

`make docs` writes them; `--check` (in `make check`, and a test) fails when a page on disk is
not what the code says.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import typer

from headrace.broker.routes import ROUTES_ON
from headrace.cli.main import build
from headrace.core.broker_configs import BROKER_KEYS, RENAMED_KEYS
from headrace.core.config_keys import ConfigKey, ConfigType, format_value
from headrace.core.group_configs import GROUP_KEYS
from headrace.core.listeners import ListenerType
from headrace.core.topic_configs import TOPIC_KEYS
from headrace.protocol.api_keys import APIS

ROUTES = ROUTES_ON[ListenerType.BROKER]

DOCS = Path(__file__).resolve().parent.parent / "docs"
NOTICE = "<!-- Made from code by scripts/reference.py (`make docs`). Do not edit. -->\n"


def configuration() -> str:
    """Every broker and topic key."""
    durable = [known for known in (*BROKER_KEYS.values(), *TOPIC_KEYS.values()) if known.crash]
    crash = "\n".join(f"| `{name}` | {text} |" for name, text in _unique(durable).items())
    return f"""{NOTICE}
# Configuration

A broker reads its configuration from three places; the later is stronger, key by key:

1. a TOML file, `headrace serve --config FILE` (or `HEADRACE_CONFIG=FILE`),
2. the environment, `HEADRACE_LOG_RETENTION_MS=60000` for `log.retention.ms`,
3. the command line, `--set log.retention.ms=60000`, `--data-dir` (`log.dirs`), `--listen`
   (`listeners`).

Keys that can change while the broker runs are changed like Kafka's, with any admin client: for
one broker (its number as the name of the resource), or for all of them (the empty name, which is
`--entity-default` of `kafka-configs.sh`; confluent-kafka and kafka-python refuse it, so name the
broker there, as `ConfigResource("broker", "0")`), and those are stronger than all three.
A key in milliseconds also takes a duration (`1h`, `7d`, `1d12h`) and one in bytes a size (`10MB`,
`1GiB`), in all three and in `headrace topic`; over the Kafka protocol they are numbers.
A key that does not exist is refused, with the nearest one that does; an unknown `HEADRACE_`
variable is only a warning in the log, since Kubernetes and others set some. In a file, a key that
begins with another one (`max.connections.per.ip`) is written in quotes.

```toml
listeners = ["PLAINTEXT://0.0.0.0:9092"]
advertised.listeners = ["PLAINTEXT://broker.example:9092"]

[log]
dirs = "/var/lib/headrace"
retention.hours = 72
flush.policy = "fsync"
```

## What a crash may lose

| key | what a crash may lose |
|---|---|
{crash}

## Broker keys

*Change*: `read-only` at start only; `per-broker` or `cluster-wide` also while running.

{_key_table(BROKER_KEYS, with_update=True)}

These names are new; the old ones are accepted until the next release, with a warning in the log:

{_renamed_keys()}

## Topic keys

Set with `headrace topic create --config KEY=VALUE`, `headrace topic alter` or any admin client;
effective at once. Without a value of its own a topic uses the broker's key in the last column.

{_key_table(TOPIC_KEYS, with_update=False)}

## Group keys

Set with any admin client on a resource of type group, which need not exist yet; effective with the
next heartbeat. Without a value of its own a group uses the broker's key, whose `min` and `max` are
also the bounds here.

{_key_table(GROUP_KEYS, with_update=False)}
"""


def _renamed_keys() -> str:
    lines = ["| key | old name |", "|---|---|"]
    return "\n".join(lines + [f"| `{new}` | `{old}` |" for old, new in RENAMED_KEYS.items()])


def _unique(keys: Iterable[ConfigKey]) -> dict[str, str]:
    return {known.name: known.crash for known in keys}


def _key_table(keys: Mapping[str, ConfigKey], *, with_update: bool) -> str:
    last = "change" if with_update else "broker key"
    lines = [f"| key | type | default | valid | {last} | meaning |", "|---|---|---|---|---|---|"]
    for known in keys.values():
        if known.internal:
            continue
        broker = "<br>".join(f"`{synonym.name}`" for synonym in known.synonyms)
        column = known.update.value if with_update else broker
        lines.append(
            f"| `{known.name}` | {known.type.name.lower()} | {_default(known)} | "
            f"{_valid(known)} | {column} | {known.doc} |"
        )
    return "\n".join(lines)


def _default(known: ConfigKey) -> str:
    text = format_value(known.default)
    if text is None:
        return "not set"
    return f"`{text}`" if text else "empty"


def _valid(known: ConfigKey) -> str:
    if known.type is ConfigType.BOOLEAN:
        return "true, false"
    return "" if known.valid is None else str(known.valid).replace("|", "\\|")


def protocol_support() -> str:
    """Every API the codec knows, and which of them the broker serves."""
    pairs = sum(route.highest_version - route.lowest_served + 1 for route in ROUTES.values())
    lines = [
        "| key | API | served versions | codec versions | flexible from |",
        "|---|---|---|---|---|",
    ]
    for api_key, api in sorted(APIS.items()):
        route = ROUTES.get(api_key)
        flexible = "never" if api.flexible_from is None else str(api.flexible_from)
        answer = "not yet"
        if route is not None:
            answer = f"{route.lowest_served}-{route.highest_version}"
            if route.lowest_version != route.lowest_served:
                answer += f" (advertised from {route.lowest_version})"
        codec = f"{api.lowest_version}-{api.highest_version}"
        lines.append(f"| {int(api_key)} | {api.name} | {answer} | {codec} | {flexible} |")
    table = "\n".join(lines)
    return f"""{NOTICE}
# Protocol support

Headrace speaks the wire protocol of Kafka 4.3. An API is advertised once its effect is tested,
and then in the full range that Kafka 4.3 offers: {len(ROUTES)} APIs in {pairs} versions today.
The codec already knows {len(APIS)} APIs. A request for an API or version that is not served
closes the connection, as Kafka does; clients do not send one, because ApiVersions tells them.

{table}

Record batches are of format v2 (magic 2) with all four codecs: gzip, snappy (both framings),
lz4 and zstd. Where an answer differs from Kafka's, [compatibility.md](compatibility.md) says why.
"""


def command_line() -> str:
    """Every command with its options."""
    group: Any = typer.main.get_command(build())
    sections = "\n".join(_command_sections(group, "headrace"))
    return f"""{NOTICE}
# Commands

Tables are for people; `--output json` is for programs. Exit codes: 0 done, 1 refused or failed,
2 wrong usage, 3 no broker reached, 130 interrupted, 143 terminated (SIGTERM), except that commands
which run until they are stopped (`serve`, `gateway`, `pipeline run`) then end with 0.

{sections}"""


def _command_sections(command: Any, path: str) -> Iterable[str]:
    if hasattr(command, "commands"):
        for name, child in command.commands.items():
            yield from _command_sections(child, f"{path} {name}")
        return
    words = " ".join(
        part.name.upper() + ("…" if part.nargs == -1 else "")
        for part in command.params
        if part.param_type_name == "argument"
    )
    yield f"## `{path}{' ' + words if words else ''}`\n\n{inspect.cleandoc(command.help or '')}\n"
    yield "| option | default | meaning |\n|---|---|---|"
    for option in command.params:
        if option.param_type_name == "option" and option.name != "help":
            names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
            default = "" if option.default in (None, False, ()) else f"`{option.default}`"
            meaning = option.help or ""
            if option.metavar and "|" in option.metavar:
                choices = option.metavar.replace("|", ", ")
                meaning = f"{meaning} One of: {choices}.".strip()
            yield f"| {names} | {default} | {meaning} |"
    yield ""


PAGES: dict[str, Callable[[], str]] = {
    "configuration.md": configuration,
    "protocol-support.md": protocol_support,
    "commands.md": command_line,
}


def drifted() -> list[str]:
    """Pages on disk that are not what the code says."""
    stale = []
    for name, make in PAGES.items():
        page = DOCS / name
        if not page.exists() or page.read_text() != make():
            stale.append(name)
    return stale


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare, write nothing")
    if parser.parse_args().check:
        stale = drifted()
        if stale:
            sys.exit(f"out of date: {', '.join(stale)}; run `make docs`")
        return
    for name, make in PAGES.items():
        (DOCS / name).write_text(make())
        print(f"docs/{name}")


if __name__ == "__main__":
    main()
