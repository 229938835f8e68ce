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
# The newest that there are for PySpark 4.3; they run on it (the second has stood still for long).
SPARK_CONNECTOR_VERSION = "4.2.0"
SPARK_TOKEN_PROVIDER_VERSION = "4.0.0"
_CONNECTOR_JARS = (
    "spark-sql-kafka-0-10",
    "spark-token-provider-kafka",
    "kafka-clients",
    "commons-pool2",
)
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
    """curl, with which the examples of the HTTP API are run."""
    return _remembered("curl", lambda: _program("curl", "curl", "curl"))


def kafka_libs() -> Path:
    """The directory with the jars of Apache Kafka and its command-line tools."""
    return _remembered("kafka", _install_kafka_libs)


def spark_connector_jars() -> list[Path]:
    """The jars of Spark's own Kafka connector that PySpark does not bring along."""
    libs = _remembered("spark-connector", _install_spark_connector)
    return sorted(each for each in libs.glob("*.jar") if each.name.startswith(_CONNECTOR_JARS))


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


Artifact = tuple[str, str, str]


def _install_kafka_libs() -> Path:
    wanted = [
        ("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        ("org.apache.kafka", "kafka-tools", KAFKA_VERSION),
        # A logging bridge, without which Kafka is mute.
        ("org.apache.logging.log4j", "log4j-slf4j-impl", LOG4J_BRIDGE_VERSION),
    ]
    return _install_jars("kafka", f"kafka-{KAFKA_VERSION}", wanted)


def _install_spark_connector() -> Path:
    spark = "org.apache.spark"
    wanted = [(spark, "spark-sql-kafka-0-10_2.13", SPARK_CONNECTOR_VERSION)]
    pinned = [(spark, "spark-token-provider-kafka-0-10_2.13", SPARK_TOKEN_PROVIDER_VERSION)]
    name = f"spark-connector-{SPARK_CONNECTOR_VERSION}"
    return _install_jars("spark-connector", name, wanted, pinned)


def _install_jars(
    group: str, name: str, wanted: list[Artifact], pinned: list[Artifact] | None = None
) -> Path:
    """A directory with these jars and all they need, filled by Maven on first use."""
    libs = tools_dir() / name
    if libs.is_dir():
        return libs
    command = maven()
    with install_lock():
        if libs.is_dir():
            return libs
        staging = tools_dir() / f"{name}.part"
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir()
        (staging / "pom.xml").write_text(_pom(wanted, pinned or []))
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
            raise ToolOutOfReach(group, f"Maven could not fetch {name}: {failure}")
        staging.rename(libs)
    return libs


def _pom(wanted: list[Artifact], pinned: list[Artifact]) -> str:
    """The Maven project that pulls in what is wanted, and of what is pinned that version only."""
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>local</groupId>"
        "<artifactId>libs</artifactId><version>1</version><dependencyManagement><dependencies>"
        f"{_dependencies(pinned)}</dependencies></dependencyManagement>"
        f"<dependencies>{_dependencies(wanted)}</dependencies></project>"
    )


def _dependencies(artifacts: list[Artifact]) -> str:
    return "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts
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
    found: tuple[Callable[[], object], ...] = (
        java,
        kafka_libs,
        spark_connector_jars,
        kcat,
        chromium,
        curl,
    )
    for find in found:
        try:
            print(f"{getattr(find, '__name__', find)}: {find()}", flush=True)
        except ToolOutOfReach as error:
            print(error, flush=True)


if __name__ == "__main__":
    main()
