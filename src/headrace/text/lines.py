"""From bytes to requests: lines, and payloads whose length a line has announced.

Pure: bytes go in in any pieces, requests come out in order. PUBLISH lines are read to the end
here, since a client may send a hundred thousand of them in a second; all others are left for
the session to read.
"""

from typing import Final, NamedTuple

from headrace.core.errors import ErrorCode
from headrace.gateway.values import OutRecord
from headrace.text.settings import TextSettings
from headrace.text.tokenizer import BadLine, Tokenizer

_HTTP_VERBS: Final = frozenset(
    (
        b"GET",
        b"HEAD",
        b"POST",
        b"PUT",
        b"DELETE",
        b"CONNECT",
        b"OPTIONS",
        b"TRACE",
        b"PATCH",
        b"PRI",
    )
)
# First letters of the options of PUBLISH, and the mark before a message that begins like one.
_MAY_BE_OPTION: Final = frozenset(b"KPHAL")
_COLON: Final = ord(":")
_LENGTH_MIN: Final = -1
_USAGE: Final = "write PUBLISH <topic> <message>; an empty message is written as :"


class Publish(NamedTuple):
    """A record for a topic."""

    topic: str
    record: OutRecord


class Command(NamedTuple):
    """Any other line."""

    line: bytes


class Refusal(NamedTuple):
    """A line that was not understood; after a fatal one nothing more can be read."""

    code: str
    message: str
    is_fatal: bool = False


class ForeignProtocol(NamedTuple):
    """Whoever is there speaks another protocol; they get no answer."""


Request = Publish | Command | Refusal | ForeignProtocol

_tuple = tuple.__new__


class LineReader:
    """The reading half of one connection. After a fatal refusal: nothing more."""

    __slots__ = ("_announced", "_ended", "_length", "_settings", "_tail", "_topics")

    def __init__(self, settings: TextSettings) -> None:
        self._settings = settings
        # What has arrived of a line or payload that is not complete.
        self._tail = bytearray()
        # Of the payload being read, and the PUBLISH line that announced it.
        self._length = -1
        self._announced: tuple[str, OutRecord] | None = None
        self._ended = False
        # Names decoded once, not for every line; bounded, since a client chooses them.
        self._topics: dict[bytes, str] = {}

    @property
    def held_bytes(self) -> int:
        return len(self._tail)

    def feed(self, data: bytes) -> list[Request]:
        """Take what has arrived; the requests that are complete now."""
        out: list[Request] = []
        if self._ended:
            return out
        if self._tail:
            if self._is_incomplete(data):
                self._tail += data
                self._check_tail(out)
                return out
            data = bytes(self._tail) + data
            self._tail.clear()
        position = 0
        while not self._ended:
            if self._announced is not None:
                end = self._payload(data, position, out)
            else:
                end = data.find(b"\n", position)
                if end >= 0:
                    self._line(data[position:end], out)
                    end += 1
            if end < 0:
                self._tail += data[position:]
                self._check_tail(out)
                break
            position = end
        return out

    def _is_incomplete(self, data: bytes) -> bool:
        if self._announced is not None:
            return len(self._tail) + len(data) < self._length + 1
        return b"\n" not in data

    def _check_tail(self, out: list[Request]) -> None:
        if self._announced is None and len(self._tail) > self._settings.line_bytes_max:
            self._too_long(out)

    def _too_long(self, out: list[Request]) -> None:
        limit = self._settings.line_bytes_max
        out.append(
            Refusal(
                "LINE_TOO_LONG",
                f"a line has at most {limit} bytes; send larger messages with LENGTH <bytes>",
                is_fatal=True,
            )
        )
        self._end()

    def _end(self) -> None:
        self._ended = True
        self._tail.clear()
        self._announced = None

    # -- lines

    def _line(self, line: bytes, out: list[Request]) -> None:
        if len(line) > self._settings.line_bytes_max:
            self._too_long(out)
            return
        if line[-1:] == b"\r":
            line = line[:-1]
        if line[:8] == b"PUBLISH ":
            topic, _, message = line[8:].partition(b" ")
            if topic and message and message[0] not in _MAY_BE_OPTION:
                if message[0] == _COLON:
                    message = message[1:]
                name = self._topics.get(topic) or self._topic(topic, out)
                if name:
                    record = _tuple(OutRecord, (message, None, None, (), None))
                    out.append(_tuple(Publish, (name, record)))
                return
        verb = line.split(b" ", 1)[0]
        if verb.upper() == b"PUBLISH":
            self._publish(line, out)
        elif verb in _HTTP_VERBS or verb[:1] == b"\x16":
            # A browser made to send our commands in the body of its request, or TLS.
            out.append(ForeignProtocol())
            self._end()
        elif line.strip():
            out.append(Command(line))

    def _topic(self, topic: bytes, out: list[Request]) -> str | None:
        try:
            name = topic.decode("ascii")
        except UnicodeDecodeError:
            name = ""
        if not name:
            message = "a topic is named by letters, digits, dots, underscores and hyphens"
            out.append(Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION.name, message))
            return None
        if len(self._topics) >= 1000:
            self._topics.clear()
        self._topics[topic] = name
        return name

    def _publish(self, line: bytes, out: list[Request]) -> None:
        """A PUBLISH line with options, or a faulty one."""
        try:
            self._read_publish(Tokenizer(line), out)
        except BadLine as error:
            # What follows may be a payload, and no line at all.
            is_fatal = b" LENGTH " in line
            out.append(Refusal(error.code.name, error.message, is_fatal))
            if is_fatal:
                self._end()

    def _read_publish(self, tokens: Tokenizer, out: list[Request]) -> None:
        tokens.next()
        name = tokens.next()
        if name is None:
            raise BadLine(_USAGE)
        key: bytes | None = None
        partition: int | None = None
        at_ms: int | None = None
        headers: list[tuple[str, bytes | None]] = []
        length: int | None = None
        while length is None:
            match tokens.peek():
                case b"KEY":
                    key = _argument(tokens, "KEY <key>")
                case b"PARTITION":
                    partition = _number(tokens, "PARTITION <number>")
                case b"AT":
                    at_ms = _number(tokens, "AT <milliseconds since 1970>")
                case b"HEADER":
                    headers.append(_header(_argument(tokens, "HEADER <name>=<value>")))
                case b"LENGTH":
                    length = _number(tokens, "LENGTH <bytes>", _LENGTH_MIN)
                case _:
                    break
        topic = self._topics.get(name) or self._topic(name, out)
        if length is not None:
            self._expect(
                topic, OutRecord(None, key, partition, headers, at_ms), length, tokens, out
            )
            return
        message = tokens.rest()
        if message is None:
            raise BadLine(_USAGE)
        if topic is None:
            return
        if message[:1] == b":":
            message = message[1:]
        out.append(Publish(topic, OutRecord(message, key, partition, headers, at_ms)))

    # -- payloads

    def _expect(
        self,
        topic: str | None,
        record: OutRecord,
        length: int,
        tokens: Tokenizer,
        out: list[Request],
    ) -> None:
        if tokens.next() is not None:
            raise BadLine("LENGTH <bytes> ends its line; the payload begins on the next one")
        limit = self._settings.payload_bytes_max
        if length > limit:
            message = f"a payload has at most {limit} bytes, not {length}"
            out.append(Refusal(ErrorCode.MESSAGE_TOO_LARGE.name, message, is_fatal=True))
            self._end()
        elif length < 0:
            if topic is not None:
                out.append(Publish(topic, record))
        else:
            self._announced = (topic or "", record)
            self._length = length

    def _payload(self, data: bytes, position: int, out: list[Request]) -> int:
        """Read a payload and the newline behind it; where it ends, -1 if it is not all there."""
        assert self._announced is not None
        end = position + self._length
        if len(data) <= end or (data[end] == 13 and len(data) == end + 1):
            return -1
        newline = 2 if data[end : end + 2] == b"\r\n" else 1
        if newline == 1 and data[end] != 10:
            message = f"the payload was announced with {self._length} bytes and has more"
            out.append(Refusal(ErrorCode.INVALID_REQUEST.name, message, is_fatal=True))
            self._end()
            return end
        topic, record = self._announced
        self._announced = None
        if topic:
            out.append(Publish(topic, record._replace(value=data[position:end])))
        return end + newline


def _argument(tokens: Tokenizer, usage: str) -> bytes:
    tokens.next()
    word = tokens.next()
    if word is None:
        raise BadLine(f"write {usage}")
    return word


def _number(tokens: Tokenizer, usage: str, lowest: int = 0) -> int:
    word = _argument(tokens, usage)
    digits = word[1:] if word[:1] == b"-" else word
    if not digits.isdigit() or len(digits) > 18 or int(word) < lowest:
        raise BadLine(f"write {usage}, not {word.decode(errors='replace')!r}")
    return int(word)


def _header(word: bytes) -> tuple[str, bytes]:
    name, equals, value = word.partition(b"=")
    if not equals or not name:
        raise BadLine("write HEADER <name>=<value>")
    try:
        return name.decode(), value
    except UnicodeDecodeError:
        raise BadLine("the name of a header is UTF-8 text") from None
