"""The text listener's reading half, for any bytes in any pieces."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.ids import TopicPartition
from headrace.gateway import OutRecord
from headrace.protocol.records.decode import Record
from headrace.text import responses
from headrace.text.lines import ForeignProtocol, LineReader, Publish, Refusal, Request
from headrace.text.settings import TextSettings
from headrace.text.tokenizer import Tokenizer, quote

SETTINGS = TextSettings(line_bytes_max=200, payload_bytes_max=300)

words = st.sampled_from(
    [
        *(b"PUBLISH", b"orders", b"KEY", b"LENGTH", b"3", b"-1", b"400", b"PARTITION", b"HEADER"),
        *(b"a=b", b'"', b"\\", b"\n", b"\r\n", b" ", b":", b"GET", b"\x16", b"CONSUME", b"\xff"),
        b"x" * 90,
    ]
)
noise = st.lists(words | st.binary(max_size=8), max_size=60).map(
    lambda parts: b" ".join(parts).replace(b" \n ", b"\n")
)


def read(pieces: list[bytes]) -> list[Request]:
    reader = LineReader(SETTINGS)
    found = [request for piece in pieces for request in reader.feed(piece)]
    assert reader.held_bytes <= SETTINGS.payload_bytes_max + SETTINGS.line_bytes_max
    return found


@given(noise, st.lists(st.integers(0, 400), max_size=12))
def test_requests_do_not_depend_on_the_pieces_they_come_in(data: bytes, cuts: list[int]) -> None:
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    pieces = [data[start:end] for start, end in pairwise(places)]
    assert read(pieces) == read([data])


@given(noise)
def test_after_the_end_of_a_conversation_comes_nothing(data: bytes) -> None:
    found = read([data])
    for request in found[:-1]:
        assert not isinstance(request, ForeignProtocol)
        assert not (isinstance(request, Refusal) and request.is_fatal)


@given(st.binary(max_size=60))
def test_a_quoted_word_reads_back_as_it_was(word: bytes) -> None:
    quoted = quote(word)
    assert b"\n" not in quoted
    line = Tokenizer(b"KEY " + quoted + b" rest")
    assert (line.next(), line.next(), line.rest()) == (b"KEY", word, b"rest")


records = st.builds(
    OutRecord,
    st.none() | st.binary(max_size=40),
    st.none() | st.binary(max_size=20),
    st.none(),
    st.lists(
        st.tuples(st.text(min_size=1, max_size=5).filter(lambda n: "=" not in n), st.binary()),
        max_size=3,
    ).filter(lambda headers: all(_is_utf8(name) for name, _ in headers)),
    st.integers(0, 2**50),
)


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@given(st.lists(records, max_size=5))
def test_what_the_server_says_of_messages_it_can_read_itself(sent: list[OutRecord]) -> None:
    """MESSAGE lines and PUBLISH lines share one grammar: the one read as the other is the same."""
    shown = [
        Record(index, record.timestamp_ms or 0, record.key, record.value, tuple(record.headers))
        for index, record in enumerate(sent)
    ]
    lines = responses.messages(TopicPartition("orders", 0), shown, times=True)
    for index in range(len(sent)):
        lines = lines.replace(b"MESSAGE orders 0 %d AT" % index, b"PUBLISH orders AT", 1)
    found = LineReader(TextSettings()).feed(lines)
    read_back = [request.record for request in found if isinstance(request, Publish)]
    assert read_back == [record._replace(headers=list(record.headers)) for record in sent]
