"""Foreign tools are installed or named as missing; what runs them tells the truth."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.groups import SKIPPED_GROUPS, required
from tests.support.kafka_tools import KafkaTools
from tests.support.processes import cpu_seconds, free_port, memory
from tests.support.tools import ToolOutOfReach

_REPOSITORY = Path(__file__).resolve().parents[2]

_SKIPPING_TEST = """
from tests.support.groups import required
from tests.support.tools import ToolOutOfReach

def missing():
    raise ToolOutOfReach("kcat", "no network")

def test_needs_the_tool():
    required(missing)

def test_needs_nothing():
    pass
"""


@pytest.mark.parametrize(("ci", "exit_code"), [("", 0), ("true", SKIPPED_GROUPS)])
@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_skipped_group_is_named_last_and_fails_in_ci(
    tmp_path: Path, ci: str, exit_code: int, workers: str
) -> None:
    (tmp_path / "test_tool.py").write_text(_SKIPPING_TEST)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-n", workers, str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTHONPATH": str(_REPOSITORY)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    end = "\n".join(done.stdout.splitlines()[-4:])
    assert "kcat: 1 tests skipped: no network" in end


def test_a_tool_that_cannot_be_had_skips_with_its_group_named() -> None:
    def missing() -> None:
        raise ToolOutOfReach("java", "not here")

    with pytest.raises(pytest.skip.Exception, match="tool group 'java' is out of reach: not here"):
        required(missing)


def test_many_kafka_tools_share_one_jvm_and_keep_their_own_outcomes() -> None:
    kafka_tools = required(KafkaTools)
    uuid, refused = kafka_tools.run_batch(
        [
            ["kafka.tools.StorageTool", "random-uuid"],
            ["org.apache.kafka.tools.DumpLogSegments", "--no-such-option"],
        ]
    )
    assert len(uuid.checked().strip()) == 22
    assert refused.exit_code == 1
    assert "no-such-option" in refused.error + refused.output


def test_a_process_is_charged_for_its_children_too() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}]); input()"
    with subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        deadline_reads = 2000
        while cpu_seconds(process.pid) < 0.3 and deadline_reads and process.poll() is None:
            deadline_reads -= 1
            os.sched_yield()
            subprocess.run(["true"], check=True)
        spent, held = cpu_seconds(process.pid), memory(process.pid)
        process.communicate(b"\n")
    assert spent >= 0.3
    assert held.total >= held.anonymous > 1_000_000


def test_free_ports_lie_below_the_range_of_outgoing_connections() -> None:
    assert all(1024 < free_port() < 32768 for _ in range(20))
