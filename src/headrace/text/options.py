"""Reading the words of a command: names, numbers, and what may follow in any order."""

from headrace.core.errors import ApiError, ErrorCode
from headrace.text.tokenizer import BadLine, Tokenizer


class UnknownCommand(ApiError):
    """A first word that is no command."""

    def __init__(self, verb: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, f"{verb!r} is no command; write HELP")


def name(tokens: Tokenizer, usage: str) -> str:
    """The next word as text; the usage is what a line without it is told."""
    word = tokens.next()
    if not word:
        raise BadLine(f"write {usage}")
    try:
        return word.decode()
    except UnicodeDecodeError:
        raise BadLine("names are UTF-8 text") from None


def number(tokens: Tokenizer, usage: str, *, highest: int = 2**62) -> int:
    """The next word as a whole number from 0 on."""
    text = name(tokens, usage)
    if not (text.isascii() and text.isdigit()) or len(text) > 18 or int(text) > highest:
        limit = "" if highest == 2**62 else f" of at most {highest}"
        raise BadLine(f"write {usage} with a number{limit}, not {text[:50]!r}")
    return int(text)


def option(tokens: Tokenizer) -> str | None:
    """The next word as the name of an option; None at the end of the line."""
    word = tokens.next()
    return None if word is None else word.decode(errors="replace").upper()


def no_more(tokens: Tokenizer, usage: str) -> None:
    """Refuse words that would be ignored."""
    word = tokens.next()
    if word is not None:
        raise BadLine(f"{word.decode(errors='replace')[:50]!r} is not understood; write {usage}")
