"""The test suite, and a second try of those few tests that watch real clocks and processes.

Usage: python -m scripts.test [PYTEST ARGUMENTS]

What is deterministic is never run twice: a failure there is a failure. Tests that start processes,
kill them and wait for them now and then fail for want of the machine. A few failures among those
are tried once more, alone; what passes then is recorded in tests/unsteady.toml with its date and
its first failure, to be mended: a test of tests/docs fails once a record is too old or a test has
too many. What fails again is a failure. Many failures are never tried again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

FEW = 4
# Where tests may depend on how quick the machine is.
WATCHING = ("tests/browser/", "tests/faults/", "tests/integration/")
RECORD = Path("tests/unsteady.toml")
_OUTPUT = Path("build/unsteady")
_FAILED = 1  # pytest's exit code for "some tests failed", and for nothing else


def main(arguments: list[str]) -> int:
    """Exit code of the suite."""
    code, failures = _pytest("first", *arguments)
    if code != _FAILED or not 0 < len(failures) <= FEW:
        return code
    firm = [test for test in failures if not test.startswith(WATCHING)]
    if firm:
        print("\ndeterministic, so not tried again:", *firm, sep="\n  ")
        return code
    print(f"\n{len(failures)} failed; a second try, alone:", flush=True)
    again, _ = _pytest("second", "-v", *failures)
    if again == 0:
        for test, failure in failures.items():
            _record(test, failure)
        print(f"unsteady, passed at the second try, recorded in {RECORD}:", *failures, sep="\n  ")
    return again


def _pytest(which: str, *arguments: str) -> tuple[int, dict[str, str]]:
    """Exit code, and the failed tests with what pytest says of them."""
    file = _OUTPUT / f"{which}.json"
    file.unlink(missing_ok=True)
    plugin = ("-p", "scripts.failed_tests", "--failed-tests", str(file))
    command = [sys.executable, "-m", "pytest", *plugin, *arguments]
    code = subprocess.run(command, check=False).returncode
    return code, json.loads(file.read_text()) if file.exists() else {}


def _record(test: str, failure: str) -> None:
    name = "".join(each if each.isalnum() or each in "._-" else "-" for each in test)
    (_OUTPUT / f"{name}.txt").write_text(failure)
    lines = [line[1:].strip() for line in failure.splitlines() if line.startswith("E ")]
    first_line = lines[0] if lines else failure.strip().partition("\n")[0]
    with RECORD.open("a") as record:
        # A JSON text is a TOML text.
        record.write(
            f"\n[[second_try]]\ntest = {json.dumps(test)}\ndate = {date.today()}\n"
            f"failure = {json.dumps(first_line[:200])}\n"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
