"""Bytes become requests, in whatever pieces they come."""

import pytest

from headrace.gateway import OutRecord
from headrace.text.lines import Command, ForeignProtocol, LineReader, Publish, Refusal, Request
from headrace.text.settings import TextSettings


def read(data: bytes, **settings: int) -> list[Request]:
    return LineReader(TextSettings(**settings)).feed(data)  # type: ignore[arg-type]  # all int


def published(line: bytes) -> OutRecord:
    [request] = read(line)
    assert isinstance(request, Publish), request
    assert request.topic == "orders"
    return request.record


def refusal(data: bytes, **settings: int) -> Refusal:
    request = read(data, **settings)[-1]
    assert isinstance(request, Refusal), request
    return request


def test_a_message_is_everything_behind_the_topic() -> None:
    assert published(b"PUBLISH orders hello  big world \n") == OutRecord(b"hello  big world ")


def test_a_line_may_end_as_telnet_ends_it() -> None:
    assert published(b"PUBLISH orders hello\r\n").value == b"hello"


def test_options_come_before_the_message() -> None:
    record = published(
        b'PUBLISH orders KEY "two words" PARTITION 3 AT 7 HEADER a=b HEADER "c d=" hi you\n'
    )
    headers = [("a", b"b"), ("c d", b"")]
    assert record == OutRecord(b"hi you", b"two words", 3, headers, 7)


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b"PUBLISH orders :KEY is a word\n", b"KEY is a word"),
        (b"PUBLISH orders :\n", b""),
        (b"PUBLISH orders ::)\n", b":)"),
        (b"PUBLISH orders Keys\n", b"Keys"),
        (b"PUBLISH orders key to success\n", b"key to success"),
        (b"publish orders hello\n", b"hello"),
        (b"PUBLISH   orders hello\n", b"hello"),
        (b"PUBLISH orders KEY k :KEY\n", b"KEY"),
    ],
)
def test_a_colon_begins_a_message_that_looks_like_an_option(line: bytes, value: bytes) -> None:
    assert published(line).value == value


def test_a_payload_of_a_given_length_may_hold_anything() -> None:
    data = b"PUBLISH orders KEY k LENGTH 12\nGET / \n\0\r\nxx\r\nTOPICS\n"
    assert read(data) == [
        Publish("orders", OutRecord(b"GET / \n\0\r\nxx", b"k", headers=[])),
        Command(b"TOPICS"),
    ]


def test_a_length_of_minus_one_is_a_record_without_a_value() -> None:
    assert published(b"PUBLISH orders KEY k LENGTH -1\n").value is None


def test_a_payload_longer_than_announced_ends_the_conversation() -> None:
    said = refusal(b"PUBLISH orders LENGTH 3\nhello\nTOPICS\n")
    assert said.is_fatal
    assert "announced with 3 bytes" in said.message


def test_a_payload_larger_than_allowed_ends_the_conversation() -> None:
    said = refusal(b"PUBLISH orders LENGTH 11\n", payload_bytes_max=10)
    assert (said.code, said.is_fatal) == ("MESSAGE_TOO_LARGE", True)


def test_an_unreadable_line_that_announces_a_payload_ends_the_conversation() -> None:
    assert refusal(b"PUBLISH orders PARTITION x LENGTH 3\nabc\n").is_fatal


@pytest.mark.parametrize(
    "line",
    [
        b"PUBLISH\n",
        b"PUBLISH orders\n",
        b"PUBLISH orders KEY\n",
        b"PUBLISH orders PARTITION one hello\n",
        b"PUBLISH orders PARTITION -1 hello\n",
        b"PUBLISH orders HEADER novalue hello\n",
        b'PUBLISH orders KEY "open hello\n',
        b'PUBLISH orders KEY "\\q" hello\n',
        b"PUBLISH \xff\xfe hello\n",
    ],
)
def test_a_line_that_cannot_be_read_is_refused_and_the_next_one_is_read(line: bytes) -> None:
    refused, command = read(line + b"TOPICS\n")
    assert isinstance(refused, Refusal)
    assert not refused.is_fatal
    assert command == Command(b"TOPICS")


def test_a_line_without_end_is_cut_off_at_the_bound() -> None:
    reader = LineReader(TextSettings(line_bytes_max=100))
    assert reader.feed(b"x" * 100) == []
    [said] = reader.feed(b"x")
    assert isinstance(said, Refusal)
    assert (said.code, said.is_fatal) == ("LINE_TOO_LONG", True)
    assert reader.feed(b"\nTOPICS\n") == []
    assert reader.held_bytes == 0


def test_a_whole_line_over_the_bound_is_refused_as_well() -> None:
    assert refusal(b"PUBLISH orders " + b"x" * 100 + b"\n", line_bytes_max=100).is_fatal


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "PRI"])
def test_after_an_http_verb_nothing_more_is_read(verb: str) -> None:
    data = f"{verb} / HTTP/1.1\r\n\r\nPUBLISH orders hello\n".encode()
    assert read(data) == [ForeignProtocol()]


def test_a_tls_greeting_is_a_strangers() -> None:
    assert read(b"\x16\x03\x01\x02\n") == [ForeignProtocol()]


def test_empty_lines_are_passed_over() -> None:
    assert read(b"\n\r\n  \nTOPICS\n") == [Command(b"TOPICS")]
