"""Where Java is looked for, and what is said when there is none."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyspark.sql import SparkSession

from headrace.spark import session as sessions
from headrace.spark.session import JavaNotFound, find_java, wrap_java


def fake_java(home: Path, version: str) -> Path:
    """A `java` that only knows its version."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return java


def none() -> None:
    return None


def test_java_home_goes_first(tmp_path: Path) -> None:
    fake_java(tmp_path / "home", "21.0.1")
    fake_java(tmp_path / "other", "17.0.1")
    found = find_java(
        environment={"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "other" / "bin")}
    )
    assert found == tmp_path / "home"


def test_a_java_in_the_path_is_left_to_spark(tmp_path: Path) -> None:
    fake_java(tmp_path, "17.0.15")
    assert find_java(environment={"PATH": str(tmp_path / "bin")}, bundled=none) is None


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
def test_an_old_java_in_the_path_is_passed_over_for_the_bundled_one(
    tmp_path: Path, version: str
) -> None:
    fake_java(tmp_path, version)
    bundled = tmp_path / "bundled"
    environment = {"PATH": str(tmp_path / "bin")}
    assert find_java(environment=environment, bundled=lambda: bundled) == bundled


def test_without_any_java_the_way_out_is_told(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match="Spark needs Java 17 or newer: there is none") as told:
        find_java(environment={"PATH": str(tmp_path)}, bundled=none)
    assert "pip install 'headrace[jre]'" in (told.value.hint or "")


def test_an_old_java_alone_is_named(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "11.0.2")
    with pytest.raises(JavaNotFound, match=f"the java of PATH, {java}, is older"):
        find_java(environment={"PATH": str(tmp_path / "bin")}, bundled=none)


@pytest.mark.parametrize(
    ("version", "said"), [("11.0.2", "is Java 11; Spark needs 17"), (None, "has no java that runs")]
)
def test_a_java_home_that_will_not_do_is_refused(
    tmp_path: Path, version: str | None, said: str
) -> None:
    if version is not None:
        fake_java(tmp_path, version)
    with pytest.raises(JavaNotFound, match=said):
        find_java(environment={"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_the_wrapper_drops_one_argument_and_keeps_the_others_as_they_are(tmp_path: Path) -> None:
    java = tmp_path / "java home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text('#!/bin/sh\nfor each in "$@"; do printf "[%s]" "$each"; done\n')
    java.chmod(0o755)
    home = wrap_java(tmp_path / "java home", tmp_path / "wrapped")
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "*"]
    done = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[-cp][a b][][Main][*]"


def test_a_wrapper_that_is_there_is_used_again(tmp_path: Path) -> None:
    home = wrap_java(tmp_path / "jdk", tmp_path / "wrapped")
    before = (home / "bin" / "java").stat().st_ino
    wrap_java(tmp_path / "jdk", tmp_path / "wrapped")
    assert (home / "bin" / "java").stat().st_ino == before


def test_a_connect_server_is_asked_without_a_java_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_java() -> None:
        raise AssertionError("Java was looked for")

    asked: dict[str, str] = {}

    def get(builder: Any) -> None:
        asked.update(builder._options)

    monkeypatch.setattr(sessions, "prepare", no_java)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", get)
    settings = {"spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
    sessions.session("orders", master="sc://somewhere:15002", settings=settings)
    assert asked["spark.remote"] == "sc://somewhere:15002"
    assert asked["spark.sql.shuffle.partitions"] == "2"
    assert asked["spark.sql.session.timeZone"] == "UTC"
    assert "spark.log.level" not in asked, "a server cannot be told that any more"


def submit_options() -> str:
    return os.environ.get("SPARK_SUBMIT_OPTS", "")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nobody has said how Spark logs."""
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Da=b")
    return monkeypatch


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("silent", "level"), [(False, "error"), (True, "off")])
def test_a_terse_java_is_started_with_a_log_of_few_words(silent: bool, level: str) -> None:
    with sessions.terse(silent=silent):
        options = shlex.split(submit_options())
    assert submit_options() == "-Da=b"
    assert options[0] == "-Da=b"
    name, _, file = options[1].partition("=")
    assert name == "-Dlog4j2.configurationFile"
    assert "%ex{none}" in Path(unquote(urlsplit(file).path)).read_text()
    assert options[2] == f"-Dheadrace.log.level={level}"


def test_a_log_that_somebody_has_chosen_stays(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for settings in (
        {"spark.log.level": "INFO"},
        {"spark.driver.extraJavaOptions": "-Dlog4j2.configurationFile=mine"},
    ):
        with sessions.terse(settings):
            assert submit_options() == "-Da=b"
    (tmp_path / "log4j2.properties.template").touch()
    bare.setenv("SPARK_CONF_DIR", str(tmp_path))
    with sessions.terse():
        assert "log4j2" in submit_options()
    (tmp_path / "log4j2.properties").touch()
    with sessions.terse():
        assert submit_options() == "-Da=b"
