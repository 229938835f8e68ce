"""Karapace's public REST tests against the HTTP API.

Usage: python -m scripts.rest_proxy CHECKOUT [--environment DIRECTORY] [--tests PATTERN]

CHECKOUT is a checkout of Karapace; nothing of it is part of this project. A broker is started in
this process, and the tests are run by an environment of their own, which is made where there is
none (CHECKOUT/.venv): they need Karapace's client classes. Tests that do not pass are listed with a
reason in docs/compatibility.md. The exit code is 1 if a test passes and is listed, or does not and
is not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from headrace.testing import Broker

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[1] / "docs" / "compatibility.md"
TESTS = ("kafka_rest_apis/test_rest.py", "kafka_rest_apis/test_rest_consumer.py")
SECONDS_MAX = 1800

# What the tests import, without what only Karapace's registry and its pages need.
NEEDS = (
    *("accept-types", "aiohttp<4", "aiokafka<0.13", "async_lru", "avro", "cachetools"),
    *("confluent-kafka", "cryptography", "dependency-injector", "fastapi", "filelock"),
    *("jsonschema", "lz4", "networkx", "opentelemetry-api", "opentelemetry-exporter-otlp"),
    *("opentelemetry-proto<1.28", "opentelemetry-sdk", "orjson", "prometheus-client"),
    *("prometheus-fastapi-instrumentator", "protobuf==3.20.3", "psutil", "pydantic"),
    *("pydantic-settings", "pyjwt", "pytest", "pytest-timeout", "python-dateutil", "requests"),
    *("tenacity", "typing-extensions", "ujson", "watchfiles", "yarl", "zstandard"),
)
_PYTHON_MIN = (3, 12)
_BEGIN, _END = "<!-- karapace -->", "<!-- end of karapace -->"


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one test ended, and why it did not pass."""

    test: str
    outcome: str
    reason: str


def expected(page: str) -> dict[str, str]:
    """Patterns of tests that do not pass, with the reasons, from the table of a page."""
    table = page.partition(_BEGIN)[2].partition(_END)[0]
    rows = re.findall(r"^\| `(.+?)` \| (.+?) \|$", table, re.MULTILINE)
    return dict(rows)


def outcomes(lines: Iterable[str]) -> list[Outcome]:
    return [Outcome(**json.loads(line)) for line in lines]


def judge(found: Iterable[Outcome], allowed: Mapping[str, str]) -> tuple[list[str], str]:
    """What is not as listed, one line each, and the sum of it all."""
    unexpected: list[str] = []
    used: set[str] = set()
    passed = failed = 0
    for each in found:
        listed = next((name for name in allowed if fnmatchcase(each.test, name)), None)
        if listed is not None:
            used.add(listed)
        if each.outcome == "passed":
            passed += listed is None
            if listed is not None:
                unexpected.append(f"{each.test} passes, and is listed as not to")
        elif listed is None:
            unexpected.append(f"{each.test} {each.outcome}: {each.reason}")
        else:
            failed += 1
    unexpected += [f"{name} is listed, and no test has this name" for name in set(allowed) - used]
    return unexpected, f"{passed} passed, {failed} failed as expected, {len(unexpected)} unexpected"


def environment(place: Path) -> Path:
    """The Python of the tests' own environment; made with what they need if it is not there."""
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([_recent_python(), "-m", "venv", place], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *NEEDS], check=True)
    return python


def _recent_python() -> str:
    names = [shutil.which(f"python3.{minor}") for minor in (12, 13, 14)]
    own = sorted(map(str, Path.home().glob(".pyenv/versions/3.1[234].*/bin/python")))
    if sys.version_info >= _PYTHON_MIN:
        names.insert(0, sys.executable)
    for name in (*names, *own):
        if name is not None and subprocess.run([name, "-V"], check=False).returncode == 0:
            return name
    raise SystemExit("Karapace's tests need Python 3.12 or newer")


def run(checkout: Path, python: Path, pattern: str) -> list[Outcome]:
    """Every test and how it ended."""
    tests = checkout / "tests" / "integration"
    # What the proxy takes that these tests were written for.
    settings = {"http.max.body.bytes": "1048576"}
    with tempfile.TemporaryDirectory() as folder, Broker(http=True, settings=settings) as broker:
        file = Path(folder) / "outcomes"
        file.touch()
        more = {
            "PYTHONPATH": os.pathsep.join(map(str, (HERE, checkout / "src", checkout))),
            "REST_PROXY_BOOTSTRAP": broker.bootstrap_servers,
            "REST_PROXY_URL": broker.http_url,
            "REST_PROXY_OUTCOMES": str(file),
        }
        command = [str(python), "-m", "pytest", "--noconftest", "-q", "--tb=no"]
        command += ["-p", "no:cacheprovider", "-W", "ignore"]
        command += ["-o", "addopts=", "--import-mode=importlib"]
        command += ["-p", "aiohttp.pytest_plugin", "-p", "rest_proxy_fixtures", "-k", pattern]
        command += [str(tests / name) for name in TESTS]
        subprocess.run(
            command, cwd=checkout, env=os.environ | more, check=False, timeout=SECONDS_MAX
        )
        return outcomes(file.read_text().splitlines())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.rest_proxy", description=__doc__)
    parser.add_argument("checkout", type=Path, help="a checkout of Karapace")
    parser.add_argument("--environment", type=Path, help="where its environment is, or is to be")
    parser.add_argument("--tests", default="", help="only these, as pytest's -k")
    options = parser.parse_args(arguments)
    checkout = options.checkout.resolve()
    if not (checkout / "tests" / "integration" / TESTS[0]).exists():
        parser.error(f"{checkout} is no checkout of Karapace")
    python = environment((options.environment or checkout / ".venv").resolve())
    found = run(checkout, python, options.tests)
    allowed = expected(PAGE.read_text())
    if options.tests:
        ran = [each.test for each in found]
        allowed = {k: v for k, v in allowed.items() if any(fnmatchcase(test, k) for test in ran)}
    unexpected, summary = judge(found, allowed)
    print(*unexpected, summary, sep="\n")
    return 1 if unexpected or not found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
