"""The root of the command line: finds the command, runs it, turns errors into exit codes."""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from headrace.core.errors import HeadraceError

COMMANDS = {
    "serve": "headrace.cli.serve",
    "gateway": "headrace.cli.gateway",
    "topic": "headrace.cli.topic",
    "group": "headrace.cli.group",
    "produce": "headrace.cli.produce",
    "consume": "headrace.cli.consume",
    "top": "headrace.cli.top",
    "log": "headrace.cli.log",
    "archive": "headrace.cli.archive",
    "pipeline": "headrace.cli.pipeline",
    "bench": "headrace.cli.bench",
    "version": "headrace.cli.version",
}

RENAMED = {"doors": "gateway"}
"""Commands by their old names, which are accepted for one release."""

FAILED, UNREACHABLE, LATE, INTERRUPTED = 1, 3, 4, 130
_UNREACHABLE = (
    "BrokerUnreachable",
    "ConnectFailed",
    "ConnectionLost",
    "BadFrame",
    "RequestTimedOut",
)


def build(only: str | None = None) -> typer.Typer:
    """The application, with all commands or with the one that is going to run."""
    app = typer.Typer(
        name="headrace",
        help="An event-streaming broker that speaks the Kafka wire protocol.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    # A callback keeps the command's name part of the command line when there is only one.
    app.callback()(_root)
    for name, module in COMMANDS.items():
        if only is None or name == only:
            import_module(module).register(app)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    _replace_old_name(arguments)
    named = arguments[0] if arguments and arguments[0] in COMMANDS else None
    try:
        try:
            build(named)(args=arguments, prog_name="headrace")
        finally:
            sys.stdout.flush()  # here an error can still be told, at exit it could not
    except OSError as error:
        sys.exit(_report_io(error, named))
    except HeadraceError as error:
        sys.exit(report(error))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _replace_old_name(arguments: list[str]) -> None:
    """Put the command's name of today where its old one was given, and say so."""
    new = RENAMED.get(arguments[0]) if arguments else None
    if new is not None:
        old, arguments[0] = arguments[0], new
        print(
            f"headrace: warning: `headrace {old}` is now `headrace {new}`; "
            "the old name goes with the next release",
            file=sys.stderr,
        )


def report(error: HeadraceError) -> int:
    """Say on stderr what failed and what to do; the exit code."""
    print(f"headrace: {error}", file=sys.stderr)
    if error.hint:
        print(f"  hint: {error.hint}", file=sys.stderr)
    if type(error).__name__ == "TooManyLateRows":  # by name, as below
        return LATE
    return UNREACHABLE if _is_unreachable(error) else FAILED


def _report_io(error: OSError, command: str | None) -> int:
    """One line about the file or the output that failed; the exit code."""
    if error.filename is not None:
        print(f"headrace: {error.filename}: {error.strerror}", file=sys.stderr)
    elif command == "serve":  # it writes to many places, and nothing to its output
        print(f"headrace: {error}", file=sys.stderr)
    elif error.errno != errno.EPIPE:  # a reader that has seen enough is no news
        print(f"headrace: cannot write the output: {error.strerror or error}", file=sys.stderr)
    try:
        sys.stdout.flush()
    except OSError:
        # What is left in the buffer would fail once more when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return FAILED


def _show_version(wanted: bool) -> None:
    if wanted:
        from headrace.cli.version import version

        version()
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def _is_unreachable(error: HeadraceError) -> bool:
    # By name, so that `serve` need not load the client to report its own errors.
    # A call that gave up is told by what its last attempt met.
    return any(type(each).__name__ in _UNREACHABLE for each in (error, error.__cause__))
