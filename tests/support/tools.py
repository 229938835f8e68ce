"""Foreign tools: find them, or install them, or say which group of tests must be skipped.

A tool lands in the system (Debian packages, as root) or under the tools directory: `.tools/` in
the checkout, or wherever HEADRACE_TOOLS_DIR points. Installation holds a file lock, so parallel
test workers and a benchmark beside them never install twice; a directory is filled under another
name and renamed when complete, so what exists is whole.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

KAFKA_VERSION = "4.3.0"
LOG4J_BRIDGE_VERSION = "2.25.4"
INSTALL_TIMEOUT_SECONDS = 600

_REPOSITORY = Path(__file__).resolve().parents[2]
_outcomes: dict[str, Path | ToolOutOfReach] = {}


class ToolOutOfReach(Exception):
    """A foreign tool can be neither found nor installed; `group` names the tests that need it."""

    def __init__(self, group: str, reason: str) -> None:
        super().__init__(f"tool group '{group}' is out of reach: {reason}")
        self.group = group
        self.reason = reason


def tools_dir() -> Path:
    """Where downloaded tools are kept between runs."""
    configured = os.environ.get("HEADRACE_TOOLS_DIR")
    directory = Path(configured) if configured else _REPOSITORY / ".tools"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def java() -> Path:
    """A Java runtime that can also compile (JDK 17 or newer)."""
    return _remembered("java", lambda: _program("java", "javac", "openjdk-17-jdk-headless"))


def maven() -> Path:
    """Maven, which fetches Kafka's jars."""
    java()
    return _remembered("java", lambda: _program("java", "mvn", "maven"), key="maven")


def kcat() -> Path:
    """kcat, which brings the distribution's older librdkafka with it."""
    return _remembered("kcat", lambda: _program("kcat", "kcat", "kcat"))


def chromium() -> Path:
    """A real browser."""
    return _remembered("chromium", lambda: _program("chromium", "chromium", "chromium"))


def curl() -> Path:
    """curl, with which the examples of the HTTP door are run."""
    return _remembered("curl", lambda: _program("curl", "curl", "curl"))


def kafka_libs() -> Path:
    """The directory with the jars of Apache Kafka and its command-line tools."""
    return _remembered("kafka", _install_kafka_libs)


def _remembered(group: str, install: Callable[[], Path], key: str = "") -> Path:
    """Run `install` once in this process; a failure is remembered too, since it may be slow."""
    key = key or group
    if key not in _outcomes:
        try:
            _outcomes[key] = install()
        except ToolOutOfReach as error:
            _outcomes[key] = ToolOutOfReach(group, error.reason)
    outcome = _outcomes[key]
    if isinstance(outcome, ToolOutOfReach):
        raise outcome
    return outcome


def _program(group: str, command: str, package: str) -> Path:
    found = shutil.which(command)
    if found is None:
        with install_lock():
            found = shutil.which(command)
            if found is None:
                _install_debian_package(group, package)
                found = shutil.which(command)
    if found is None:
        raise ToolOutOfReach(group, f"package {package} brought no {command}")
    return Path(found)


def _install_debian_package(group: str, package: str) -> None:
    if shutil.which("apt-get") is None:
        raise ToolOutOfReach(group, f"no {package} on this machine and no apt-get to install it")
    if os.geteuid() != 0:
        raise ToolOutOfReach(group, f"install the package {package} (not root, cannot do it here)")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends", package]
    # The package lists of a fresh machine are empty or old: on a first failure, renew them.
    attempts = [install, ["apt-get", "update", "-q"], install]
    last = ""
    for command in attempts:
        last = _failure(command, environment)
        if not last and command is install:
            return
    raise ToolOutOfReach(group, f"apt-get install {package}: {last}")


def _install_kafka_libs() -> Path:
    libs = tools_dir() / f"kafka-{KAFKA_VERSION}"
    if libs.is_dir():
        return libs
    command = maven()
    with install_lock():
        if libs.is_dir():
            return libs
        staging = tools_dir() / f"kafka-{KAFKA_VERSION}.part"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        (staging / "pom.xml").write_text(_pom())
        failure = _failure(
            [
                str(command),
                "-q",
                "-B",
                "-f",
                str(staging / "pom.xml"),
                "dependency:copy-dependencies",
                f"-DoutputDirectory={staging}",
                "-DincludeScope=runtime",
            ],
            dict(os.environ),
        )
        if failure:
            raise ToolOutOfReach("kafka", f"Maven could not fetch Kafka {KAFKA_VERSION}: {failure}")
        staging.rename(libs)
    return libs


def _pom() -> str:
    """The Maven project that pulls in broker, tools and a logging bridge (else Kafka is mute)."""
    wanted = [
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_BRIDGE_VERSION),
    ]
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in wanted
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>local</groupId>"
        "<artifactId>kafka-libs</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


def _failure(command: list[str], environment: dict[str, str]) -> str:
    """Run a command; empty when it succeeded, else the last line it said."""
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=INSTALL_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    said = (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()
    errors = [line for line in said if "ERROR" in line]
    return (errors or said[-1:])[0][:300]


@contextmanager
def install_lock() -> Iterator[None]:
    """Held while something is installed or compiled; shared by every process on the machine."""
    with (tools_dir() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> None:
    """Get everything now, so that no test's own time is spent on downloads."""
    for find in (java, kafka_libs, kcat, chromium, curl):
        try:
            print(f"{find.__name__}: {find()}", flush=True)
        except ToolOutOfReach as error:
            print(error, flush=True)


if __name__ == "__main__":
    main()
