"""Kafka's own tools and small Java programs, run from Kafka's jars.

Starting a JVM costs seconds of CPU, so many commands can share one: `run_batch` hands a list of
tool invocations to a driver program that calls each tool's main method and reports what it wrote.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import tools

QUICK_JVM = ("-Xmx256M", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
JAVA_SOURCES = Path(__file__).parent / "java"
DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"

_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.e.ref = E
appender.e.type = Console
appender.e.name = E
appender.e.target = SYSTEM_ERR
appender.e.layout.type = PatternLayout
appender.e.layout.pattern = %d %p %c{1} %m%n
"""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What one tool said, and the exit code it asked for."""

    exit_code: int
    output: str
    error: str

    def checked(self) -> str:
        """The output of a tool that succeeded; an assertion names what went wrong otherwise."""
        assert self.exit_code == 0, f"exit {self.exit_code}\n{self.output}\n{self.error}"
        return self.output


class KafkaTools:
    """Runs classes from Kafka's jars. Raises ToolOutOfReach when they cannot be had."""

    def __init__(self) -> None:
        self._java = tools.java().parent / "java"
        self._libs = tools.kafka_libs()
        self._logging = tools.tools_dir() / "log4j2.properties"
        if not self._logging.exists():
            staging = self._logging.with_suffix(f".{os.getpid()}")
            staging.write_text(_LOGGING)
            staging.replace(self._logging)

    def command(
        self, main_class: str, *arguments: str, jvm: Sequence[str] = QUICK_JVM, classes: str = ""
    ) -> list[str]:
        """The command line that runs `main_class`."""
        class_path = f"{self._libs}/*"
        if classes:
            class_path = f"{classes}{os.pathsep}{class_path}"
        logging = f"-Dlog4j2.configurationFile={self._logging}"
        return [str(self._java), *jvm, logging, "-cp", class_path, main_class, *arguments]

    def run(
        self, main_class: str, *arguments: str, text: str = "", timeout_seconds: float = 120
    ) -> ToolResult:
        """Run one tool in a JVM of its own."""
        return _run(self.command(main_class, *arguments), text, timeout_seconds)

    def run_batch(
        self, invocations: Sequence[Sequence[str]], timeout_seconds: float = 240
    ) -> list[ToolResult]:
        """Run several tools (each a class name and its arguments) one after another in one JVM."""
        text = "".join(json.dumps(list(invocation)) + "\n" for invocation in invocations)
        reply = self.run_program("ToolBatch", text=text, timeout_seconds=timeout_seconds)
        lines = [json.loads(line) for line in reply.checked().split("\n") if line]
        assert len(lines) == len(invocations), f"{len(lines)} answers\n{reply.error}"
        return [ToolResult(line["exit"], line["out"], line["err"]) for line in lines]

    def run_program(
        self, program: str, *arguments: str, text: str = "", timeout_seconds: float = 240
    ) -> ToolResult:
        """Compile (once) and run a program from `tests/support/java`."""
        classes = self.compiled(JAVA_SOURCES / f"{program}.java")
        command = self.command(program, *arguments, classes=str(classes))
        return _run(command, text, timeout_seconds)

    def compiled(self, source: Path) -> Path:
        """A directory with the classes of one source file, compiled when its text is new."""
        digest = hashlib.sha256(source.read_bytes()).hexdigest()[:16]
        classes = tools.tools_dir() / "classes" / f"{source.stem}-{digest}"
        if classes.is_dir():
            return classes
        with tools.install_lock():
            if classes.is_dir():
                return classes
            staging = classes.with_suffix(".part")
            shutil.rmtree(staging, ignore_errors=True)
            staging.mkdir(parents=True)
            compiler = [str(tools.java()), "-nowarn", "-cp", f"{self._libs}/*", "-d", str(staging)]
            _run([*compiler, str(source)], "", 120).checked()
            staging.rename(classes)
        return classes


def _run(command: list[str], text: str, timeout_seconds: float) -> ToolResult:
    done = subprocess.run(
        command,
        input=text,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout_seconds,
        check=False,
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)
