"""Every example of docs/http.md is run with curl against a broker, and answers as it says."""

import re
import subprocess
from pathlib import Path

from tests.support import tools
from tests.support.groups import required
from tests.support.web import local_web

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"
TIMED_OUT = 28  # how curl ends where it is told to stop a stream


def transcript(text: str) -> list[tuple[str, str]]:
    """Commands and what they print, from the console blocks in their order."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines = part.splitlines()
            command = [lines.pop(0)]
            while lines and lines[0].startswith("> "):
                command.append(lines.pop(0)[2:])
            found.append(("\n".join(command), "\n".join(lines)))
    return found


def test_every_example_answers_as_the_page_says() -> None:
    required(tools.curl)
    examples = transcript(PAGE.read_text())
    assert len(examples) > 25
    with local_web() as web:
        address = web.url.removeprefix("http://").replace("127.0.0.1", "localhost")
        for command, expected in examples:
            done = subprocess.run(
                ["bash", "-c", command.replace("localhost:8080", address)],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode in (0, TIMED_OUT), command + done.stderr
            said = done.stdout.replace(address, "localhost:8080").strip()
            pattern = ".*".join(map(re.escape, expected.strip().split("…")))
            assert re.fullmatch(pattern, said, re.DOTALL), f"{command}\n{said}\nnot\n{expected}"


def test_an_example_that_lies_is_noticed() -> None:
    assert transcript("```console\n$ a \\\n> b\nsaid\n$ c\n```\n") == [
        ("a \\\nb", "said"),
        ("c", ""),
    ]


def test_the_page_names_every_error_code() -> None:
    from headrace.web import errors

    page = PAGE.read_text()
    codes = [value for name, value in vars(errors).items() if name.isupper() and type(value) is int]
    assert len(codes) > 10
    assert [code for code in codes if str(code) not in page] == []
