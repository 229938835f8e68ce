"""What the server says, line by line."""

import pytest

from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import TopicPartition
from headrace.gateway import Produced
from headrace.protocol.records.decode import Record
from headrace.text import responses

WHERE = TopicPartition("orders", 2)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (Record(7, 1, None, b"hello world"), b"MESSAGE orders 2 7 :hello world\n"),
        (Record(7, 1, b"k", b"v"), b"MESSAGE orders 2 7 KEY k :v\n"),
        (Record(7, 1, b"a b", b""), b'MESSAGE orders 2 7 KEY "a b" :\n'),
        (Record(7, 1, None, None), b"MESSAGE orders 2 7 LENGTH -1\n"),
        (Record(7, 1, None, b"a\nb"), b"MESSAGE orders 2 7 LENGTH 3\na\nb\n"),
        (Record(7, 1, None, b"a\r"), b"MESSAGE orders 2 7 LENGTH 2\na\r\n"),
        (
            Record(7, 1, None, b"v", (("a", b"1"), ("b c", None))),
            b'MESSAGE orders 2 7 HEADER a=1 HEADER "b c=" :v\n',
        ),
    ],
)
def test_a_message_is_a_line_unless_its_value_has_lines(record: Record, line: bytes) -> None:
    assert responses.messages(WHERE, [record], times=False) == line


def test_times_are_shown_when_asked_for() -> None:
    record = Record(7, 1500, None, b"v")
    assert responses.messages(WHERE, [record], times=True) == b"MESSAGE orders 2 7 AT 1500 :v\n"


def test_an_error_is_one_line_whatever_it_says() -> None:
    error = ApiError(ErrorCode.INVALID_REQUEST, "first\nOK second", hint="do\r\nthis")
    assert responses.failed(error) == b"ERR INVALID_REQUEST first OK second; do this\n"


def test_each_record_gets_its_own_answer() -> None:
    error = ApiError(ErrorCode.INVALID_RECORD, "no")
    assert responses.produced([Produced(1, 5), Produced(0, -1, error)]) == [
        b"OK partition=1 offset=5\n",
        b"ERR INVALID_RECORD no\n",
    ]
