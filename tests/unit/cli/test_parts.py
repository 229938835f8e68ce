"""Parts of the command line that need no broker."""

import subprocess
import sys

import pytest
import typer

from headrace.cli.bench.measurement import percentile, rates
from headrace.cli.consume import iso_time
from headrace.cli.main import COMMANDS, FAILED, UNREACHABLE, report
from headrace.cli.options import parse_pairs
from headrace.cli.output import readable
from headrace.client import BrokerUnreachable, CallTimedOut
from headrace.core.errors import InvalidConfig


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = [float(number) for number in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile([7.0], 0.01) == 7


def test_rates_are_per_second() -> None:
    assert rates(1_000, 5_000_000, 2.0) == {
        "records": 1_000,
        "seconds": 2.0,
        "records_per_second": 500,
        "megabytes_per_second": 2.5,
    }


def test_pairs_may_hold_equal_signs_and_the_later_one_wins() -> None:
    pairs = ["a=1", "b=x=y", "a=2"]
    assert parse_pairs(pairs, "--set") == {"a": "2", "b": "x=y"}
    with pytest.raises(typer.BadParameter, match="expected KEY=VALUE"):
        parse_pairs(["a"], "--set")


def test_bytes_are_shown_as_text_where_they_are_text() -> None:
    assert [readable(data) for data in (b"caf\xc3\xa9", b"\xff\x00", None)] == [
        "café",
        "ff00",
        None,
    ]


def test_a_time_beyond_the_calendar_is_no_error() -> None:
    assert iso_time(1_700_000_000_000) == "2023-11-14T22:13:20.000+00:00"
    assert iso_time(2**63 - 1) is None


def test_an_error_is_told_with_its_hint_and_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert report(InvalidConfig("that is wrong", hint="do this")) == FAILED
    assert report(BrokerUnreachable("nobody there")) == UNREACHABLE
    gave_up = CallTimedOut("gave up")
    gave_up.__cause__ = BrokerUnreachable("nobody there")
    assert report(gave_up) == UNREACHABLE
    assert report(CallTimedOut("gave up")) == FAILED
    assert capsys.readouterr().err.startswith(
        "headrace: that is wrong\n  hint: do this\nheadrace: nobody there\n"
    )


def test_serve_loads_neither_the_client_nor_the_other_commands() -> None:
    """What it does not need would cost every start of a broker time and memory."""
    program = (
        "import sys\n"
        "from headrace.cli.main import build\n"
        "import headrace.node.config\n"
        "import headrace.node.node\n"
        "build('serve')\n"
        "print(*sorted(sys.modules))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    loaded = set(run.stdout.split())
    others = {module for name, module in COMMANDS.items() if name != "serve"}
    later = {"headrace.log.compaction.compactor", "headrace.groups.group_coordinator", "tomllib"}
    assert not loaded & (others | later | {"headrace.client", "rich", "pytest"})
