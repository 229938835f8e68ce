"""Log lines: fields out of templates, for people and for programs."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from headrace.core.ids import TopicPartition
from headrace.node.log_lines import JsonFormatter, TextFormatter, configure, parse_template


def record(template: str, *args: object, level: int = logging.INFO) -> logging.LogRecord:
    made = logging.LogRecord("headrace.x", level, __file__, 1, template, args, None)
    made.created = 1_700_000_000.0625
    return made


def as_json(template: str, *args: object) -> dict[str, object]:
    line = JsonFormatter().format(record(template, *args))
    assert "\n" not in line
    parsed: dict[str, object] = json.loads(line)
    return parsed


def test_the_fields_of_a_template_become_words() -> None:
    made = record("cut a torn tail: segment=%s bytes=%d took_ms=%.1f", "/a b/0.log", 7, 1.25)
    assert TextFormatter().format(made) == (
        "2023-11-14T22:13:20.062Z INFO    headrace.x: cut a torn tail"
        ' segment="/a b/0.log" bytes=7 took_ms=1.2'
    )


def test_the_fields_of_a_template_become_json_with_their_types() -> None:
    assert as_json(
        "seen: name=%s count=%d share=%.2f none=%s flag=%s", "x", 7, 0.5, None, True
    ) == {
        "time": "2023-11-14T22:13:20.062Z",
        "level": "info",
        "logger": "headrace.x",
        "message": "seen",
        "name": "x",
        "count": 7,
        "share": 0.5,
        "none": None,
        "flag": True,
    }


def test_a_partition_is_told_as_topic_and_partition() -> None:
    line = as_json("compacted: partition=%s", TopicPartition("orders", 3))
    assert (line["topic"], line["partition"]) == ("orders", 3)


def test_what_is_in_another_form_stays_a_message() -> None:
    assert as_json("%s connected after %d ms", "x", 7)["message"] == "x connected after 7 ms"
    assert as_json("all done")["message"] == "all done"
    assert as_json("100% sure: name=x")["message"] == "100% sure: name=x"
    assert parse_template("a: b=%s") is not None
    assert parse_template("a: b=%s and more") is None
    assert parse_template("a %s: b=%s") is None


@pytest.mark.parametrize("text", ["", "a b", 'a"b', "a=b", "a\nERROR forged", "a\x1b[2Jb"])
def test_a_value_cannot_pass_for_more_than_a_value(text: str) -> None:
    line = TextFormatter().format(record("seen: client_id=%s", text))
    assert line.endswith("client_id=" + json.dumps(text))
    assert "\n" not in line
    assert "\x1b" not in line


def test_a_foreign_message_stays_on_its_line() -> None:
    assert "\n" not in TextFormatter().format(record("a\nb"))


def test_an_exception_is_shown_whole() -> None:
    made = record("failed: duty=%s", "retention")
    try:
        raise ValueError("no")
    except ValueError as error:
        made.exc_info = (ValueError, error, error.__traceback__)
    assert "\nTraceback" in TextFormatter().format(made)
    assert "ValueError: no" in json.loads(JsonFormatter().format(made))["exception"]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root, one = logging.getLogger(), logging.getLogger("headrace.one")
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before
    one.setLevel(logging.NOTSET)


@pytest.mark.usefixtures("restored_logging")
def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, no_colour, coloured in (
        (Terminal(), False, True),
        (Terminal(), True, False),
        (io.StringIO(), False, False),
    ):
        monkeypatch.delenv("NO_COLOR", raising=False)
        if no_colour:
            monkeypatch.setenv("NO_COLOR", "1")
        configure(["info"], "text", stream)
        logging.getLogger("headrace.one").warning("seen")
        assert ("\x1b[" in stream.getvalue()) is coloured


@pytest.mark.usefixtures("restored_logging")
def test_one_logger_may_have_a_level_of_its_own() -> None:
    stream = io.StringIO()
    configure(["warning", "headrace.one=debug"], "json", stream)
    for name in ("headrace.one", "headrace.two"):
        logging.getLogger(name).debug("seen: by=%s", name)
    assert [json.loads(line)["by"] for line in stream.getvalue().splitlines()] == ["headrace.one"]
