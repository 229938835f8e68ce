"""Base classes of everything declared: nested structs, and messages with versions.

A declaration costs next to nothing at import: a class with slots and its list of fields. The
constructor is compiled when the first object is made, the codec of a version when the first
message of that version is read or written; from then on both are straight-line code.
"""

from collections.abc import Callable
from struct import error as StructError  # noqa: N812
from sys import maxsize
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, dataclass_transform

from headrace.core.errors import MalformedMessage, UnencodableMessage
from headrace.core.files import Buffer, Part
from headrace.protocol import fields as wire_types
from headrace.protocol.fields import Field

# What the generated decoder lets escape when the bytes end early or are no UTF-8.
_BAD_BYTES = (StructError, IndexError, ValueError)


class Schema(NamedTuple):
    """Which versions of a message exist, and from which on lengths are compact and tags allowed."""

    lowest_version: int
    highest_version: int
    flexible_from: int | None
    api_key: int | None
    record_type: int | None

    def is_flexible(self, version: int) -> bool:
        """Whether this version uses compact lengths and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


class StructType(type):
    """Turns the declared fields of a class into slots, and remembers them in order."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> "StructType":
        declared = {key: value for key, value in namespace.items() if isinstance(value, Field)}
        for key in declared:
            del namespace[key]
        namespace["__slots__"] = tuple(declared)
        if declared:
            namespace["fields_declared"] = declared
        return super().__new__(mcs, name, bases, namespace)


@dataclass_transform(
    kw_only_default=True,
    field_specifiers=(
        wire_types.boolean,
        wire_types.int8,
        wire_types.int16,
        wire_types.uint16,
        wire_types.int32,
        wire_types.int64,
        wire_types.float64,
        wire_types.uuid,
        wire_types.string,
        wire_types.binary,
        wire_types.batches,
        wire_types.array,
        wire_types.struct,
    ),
)
class Struct(metaclass=StructType):
    """A group of fields inside a message; equal when all fields are."""

    fields_declared: ClassVar[dict[str, Field]] = {}
    __hash__: ClassVar[None]  # type: ignore[assignment]  # mutable, so not hashable

    def __init__(self, **values: Any) -> None:
        # Runs once per class: it puts the compiled constructor in its own place.
        from headrace.protocol.constructor import compile_constructor

        cls = type(self)
        cls.__init__ = compile_constructor(cls)  # type: ignore[method-assign]  # by design
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct) or other.fields_declared is not self.fields_declared:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.fields_declared)

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.fields_declared)
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A struct that stands on its own: a request, a response or a stored record."""

    schema: ClassVar[Schema]
    _decoders: ClassVar[dict[int, Callable[[Buffer, int, int], tuple[Any, int]]]]
    _encoders: ClassVar[dict[int, Callable[[Any, list[Buffer], list[Part] | None], None]]]

    @classmethod
    def decode(
        cls, buffer: Buffer, version: int, position: int = 0, items_max: int = maxsize
    ) -> Self:
        """Read one message that fills `buffer` from `position` to its very end."""
        message, end = cls.decode_from(buffer, version, position, items_max)
        if end != len(buffer):
            raise MalformedMessage(
                f"{cls.__name__} v{version}: {len(buffer) - end} bytes left over"
            )
        return message

    @classmethod
    def decode_from(
        cls, buffer: Buffer, version: int, position: int = 0, items_max: int = maxsize
    ) -> tuple[Self, int]:
        """Read one message and say where it ended; more may follow.

        Raises `TooManyItems`, before they are made, if its arrays hold more than `items_max`.
        """
        decoder = cls._decoders.get(version)
        if decoder is None:
            from headrace.protocol.decoder import compile_decoder

            decoder = cls._decoders[version] = compile_decoder(cls, version)
        try:
            return decoder(buffer, position, items_max)
        except MalformedMessage:
            raise
        except _BAD_BYTES as error:
            raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from None

    def encode(self, version: int) -> bytes:
        """The bytes of this message, without header or length."""
        pieces: list[Buffer] = []
        self._encode_into(version, pieces, None)
        return b"".join(pieces)

    def encode_parts(self, version: int) -> list[Part]:
        """The same bytes as `encode` in several buffers, with large records left where they are."""
        pieces: list[Buffer] = []
        parts: list[Part] = []
        self._encode_into(version, pieces, parts)
        if pieces or not parts:
            parts.append(b"".join(pieces))
        return parts

    def _encode_into(self, version: int, pieces: list[Buffer], parts: list[Part] | None) -> None:
        encoder = self._encoders.get(version)
        if encoder is None:
            from headrace.protocol.encoder import compile_encoder

            encoder = self._encoders[version] = compile_encoder(type(self), version)
        try:
            encoder(self, pieces, parts)
        except UnencodableMessage:
            raise
        except (StructError, AttributeError, TypeError, ValueError, OverflowError) as error:
            name = type(self).__name__
            raise UnencodableMessage(f"{name} v{version} cannot be written: {error}") from error


M = TypeVar("M", bound=Message)


def message(
    *,
    versions: tuple[int, int],
    flexible_from: int | None,
    api_key: int | None = None,
    record_type: int | None = None,
) -> Callable[[type[M]], type[M]]:
    """Give a declared message its versions, and its API key or metadata record type if any."""

    def declare(cls: type[M]) -> type[M]:
        cls.schema = Schema(*versions, flexible_from, api_key, record_type)
        cls._decoders = {}
        cls._encoders = {}
        return cls

    return declare
