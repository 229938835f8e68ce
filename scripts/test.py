"""The test suite, and a second look at what failed in it.

Usage: python -m scripts.test [PYTEST ARGUMENTS]

Thousands of tests beside each other, many of which kill processes and watch clocks, now and then
fail for want of the machine. A few failures are therefore run once more, alone and in a fresh
process: what fails again is a failure, what passes is named as unsteady in the last lines, to be
mended. Many failures are never run again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

FEW = 4
_FAILED = 1  # pytest's exit code for "some tests failed", and for nothing else
_LAST_FAILED = Path(".pytest_cache/v/cache/lastfailed")


def main(arguments: list[str]) -> int:
    """Exit code of the suite."""
    code = _pytest("--cache-clear", *arguments)
    failed = _failed() if code == _FAILED else []
    if not 0 < len(failed) <= FEW:
        return code
    print(f"\n{len(failed)} failed; once more, alone:", flush=True)
    again = _pytest("-v", *failed)
    if again == 0:
        print("unsteady, passed when run alone:", *failed, sep="\n  ")
    return again


def _failed() -> list[str]:
    # Tests that must stay together bear the name of their group, which is no part of their own.
    return sorted(re.sub(r"@[\w-]+$", "", each) for each in json.loads(_LAST_FAILED.read_text()))


def _pytest(*arguments: str) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
