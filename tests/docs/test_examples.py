"""The examples in the README and the testing guide are run as they stand."""

import inspect
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

from headrace.testing import Broker

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def python_blocks(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


def run_pytest(directory: Path, *tests: str) -> None:
    """Run tests in a directory of their own, as somebody who has installed Headrace would."""
    for number, test in enumerate(tests):
        (directory / f"test_example_{number}.py").write_text(test)
    (directory / "pytest.ini").write_text("[pytest]\n")
    # The mode that the guide asks for where tests are coroutines.
    options = ["--asyncio-mode", "auto", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", "-q", *options]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def run_program(program: str, broker: Broker) -> str:
    """Run an example against a broker elsewhere than it says; what it prints."""
    program = program.replace("127.0.0.1:9092", broker.bootstrap_servers)
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tests_shown_in_the_readme_and_the_guide_pass(tmp_path: Path) -> None:
    shown = [block for block in python_blocks("README.md") if "headrace_broker" in block]
    run_pytest(tmp_path, *shown, *python_blocks("docs/testing.md"))


def test_the_quick_start_of_the_readme_works() -> None:
    """The two programs, and then what needs none: HTTP, plain TCP and the command line."""
    produce, consume = python_blocks("README.md")[:2]
    (shell,) = re.findall(r"^```sh\n(curl .*?)^```", README, re.MULTILINE | re.DOTALL)
    write, read, netcat, *commands = shell.splitlines()
    with Broker(http=True, text=True) as broker:
        assert run_program(produce, broker) == ""
        assert run_program(consume, broker) == "b'hello'\n"
        assert [each["offset"] for each in json.loads(run_line(write, broker))["offsets"]] == [1]
        values = [each["value"] for each in json.loads(run_line(read, broker))]
        assert values == ["hello", {"hello": "world"}]
        *said, told = (say(line, broker) for line in netcat.partition("# ")[2].split(", "))
        assert said[0].startswith("OK ")
        assert said[1].startswith("MESSAGE greetings 0 0 ")
        assert "PUBLISH" in told
        consumed, described, topped = (run_line(line, broker) for line in commands)
    records = [json.loads(line)["value"] for line in consumed.splitlines()]
    assert records == ["hello", '{"hello": "world"}', "hello"]
    assert "greetings" in described
    assert "greetings" in topped


def run_line(line: str, broker: Broker) -> str:
    """What a line of a shell prints, with a broker elsewhere than it says; one look of `top`."""
    line = line.replace("localhost:8080", broker.http_url)
    line = re.sub("^headrace top", "headrace top --once", line)
    line = re.sub("^headrace", f"{sys.executable} -m headrace", line)
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap_servers}
    done = subprocess.run(
        line, shell=True, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def say(line: str, broker: Broker) -> str:
    """The first line that the text listener answers."""
    with (
        socket.create_connection(broker.text_address, 30) as client,
        client.makefile("rw") as lines,
    ):
        lines.write(f"{line}\n")
        lines.flush()
        return lines.readline()


def test_the_guide_names_all_that_a_broker_offers() -> None:
    guide = (ROOT / "docs" / "testing.md").read_text()
    offered = {name for name in vars(Broker) if not name.startswith("_")}
    offered |= set(inspect.signature(Broker).parameters)
    assert [name for name in sorted(offered) if not re.search(rf"`[^`]*\b{name}\b", guide)] == []


def test_addresses_with_a_question_mark_are_quoted() -> None:
    """Bare, zsh takes them for patterns of file names and runs nothing."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    lines = [line for page in pages for line in page.read_text().splitlines() if "curl " in line]
    assert [line for line in lines if re.search(r"\s[^'\"\s]+\?\w+=", line)] == []


def test_the_examples_of_the_client_guide_work() -> None:
    with Broker() as broker:
        said = [run_program(block, broker) for block in python_blocks("docs/client.md")]
    assert said[:2] == ["b'table 4' b'one espresso'\n", "b'table 4' b'one macchiato'\n"]
    assert said[2] == "receipts 0\n"
    *records, lag_0, lag_1, lag_2 = said[3].splitlines()
    assert records == ["b'one espresso'", "b'one macchiato'"]
    assert sorted([lag_0, lag_1, lag_2]) == ["0 0", "1 0", "2 0"]
    assert said[4:] == ["0\n"]
