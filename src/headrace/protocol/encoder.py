"""Writes, for one version of a message, the Python source that writes it.

The generated function appends small byte strings to `pieces`. Neighbouring fields of fixed
size go through one `pack`. When the caller wants parts, a large `records` value closes the
pieces before it and stands in `parts` by itself, uncopied; so does one that is still in a file.
"""

from collections.abc import Callable
from struct import Struct as Format
from struct import pack
from typing import Any

from headrace.core.errors import UnencodableMessage
from headrace.core.files import Buffer, FileRange, Part
from headrace.protocol.constructor import default_expression
from headrace.protocol.fields import FIXED_FORMATS, Field
from headrace.protocol.wire import SHORT_VARINTS, encode_varint

Encoder = Callable[[Any, list[Buffer], list[Part] | None], None]

# Below this a copy is cheaper than one more buffer in the list.
RECORDS_APART_BYTES = 2048


def compile_encoder(cls: Any, version: int) -> Encoder:
    """A function of (message, pieces, parts or None)."""
    schema = cls.schema
    if not schema.lowest_version <= version <= schema.highest_version:
        raise UnencodableMessage(f"{cls.__name__} has no version {version}")
    return _EncoderWriter(cls.__name__, version, schema.is_flexible(version)).compile(cls)


class _EncoderWriter:
    """Collects the source lines of one encoder."""

    def __init__(self, name: str, version: int, flexible: bool) -> None:
        self.name = name
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 1
        self.names_used = 0
        self.out = "add"
        # Fixed-size values waiting to be packed together: (format letter, expression).
        self.run: list[tuple[str, str]] = []
        self.scope: dict[str, Any] = {
            "SHORT": SHORT_VARINTS,
            "encode_varint": encode_varint,
            "Unencodable": UnencodableMessage,
            "join": b"".join,
            "pack_items": _pack_items,
            "APART": RECORDS_APART_BYTES,
            "FileRange": FileRange,
        }

    def compile(self, cls: Any) -> Encoder:
        self.line("add = pieces.append")
        self.struct(cls, "message")
        self.flush()
        source = "def encode(message, pieces, parts):\n" + "\n".join(self.lines)
        exec(compile(source, f"<{self.name} v{self.version} encoder>", "exec"), self.scope)
        encoder: Encoder = self.scope["encode"]
        return encoder

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.names_used += 1
        return f"{stem}{self.names_used}"

    def fail(self, name: str) -> str:
        return f"raise Unencodable({f'{self.name} v{self.version}: {name} must not be null'!r})"

    def flush(self) -> None:
        """Pack the fixed-size values collected so far."""
        if not self.run:
            return
        letters = "".join(letter for letter, _ in self.run)
        packed = Format(">" + letters).pack
        if all(expression.isdigit() for _, expression in self.run):
            constant = packed(*(int(expression) for _, expression in self.run))
            self.line(f"{self.out}({constant!r})")
        else:
            name = f"pack_{letters.replace('?', 'o')}"
            self.scope[name] = packed
            values = ", ".join(expression for _, expression in self.run)
            self.line(f"{self.out}({name}({values}))")
        self.run = []

    def struct(self, cls: Any, source: str) -> None:
        tagged: list[tuple[int, str, Field]] = []
        for name, field in cls.fields_declared.items():
            if not field.is_in(self.version):
                continue
            if field.tag is not None:
                tagged.append((field.tag, name, field))
            else:
                self.value(field, f"{source}.{name}", name)
        if self.flexible:
            self.tags(source, sorted(tagged, key=lambda entry: entry[0]))

    def varint(self, expression: str) -> None:
        self.flush()
        self.line(
            f"{self.out}(SHORT[{expression}] if {expression} < 128"
            f" else encode_varint({expression}))"
        )

    def tags(self, source: str, tagged: list[tuple[int, str, Field]]) -> None:
        if not tagged:
            self.run.append(("B", "0"))
            return
        self.flush()
        tests = [self.differs(field, f"{source}.{name}") for _, name, field in tagged]
        self.line(f"if not ({' or '.join(tests)}):")
        self.line(f"    {self.out}(b'\\0')")
        self.line("else:")
        self.depth += 1
        outer = self.out
        held = self.fresh("tags")
        self.line(f"{held} = []")
        for test, (tag, name, field) in zip(tests, tagged, strict=True):
            self.line(f"if {test}:")
            self.depth += 1
            body = self.fresh("body")
            self.line(f"{body} = []")
            self.out = f"{body}.append"
            self.value(field, f"{source}.{name}", name)
            self.flush()
            self.line(f"{held}.append((encode_varint({tag}), join({body})))")
            self.depth -= 1
        self.out = outer
        self.line(f"{outer}(encode_varint(len({held})))")
        one = self.fresh("tag")
        self.line(f"for {one} in {held}:")
        self.line(f"    {outer}({one}[0])")
        self.line(f"    {outer}(encode_varint(len({one}[1])))")
        self.line(f"    {outer}({one}[1])")
        self.depth -= 1

    def differs(self, field: Field, value: str) -> str:
        """Source of the test whether a tagged field has to be written."""
        if field.kind == "array" and field.default is not None:
            # Null is not the default either, so it must travel.
            return f"{value} is None or len({value})"
        if field.default is None:
            return f"{value} is not None"
        default = default_expression(field, self.scope)
        if field.kind == "struct":
            return f"{value} is not {default} and {value} != {default}"
        return f"{value} != {default}"

    def value(self, field: Field, value: str, name: str) -> None:
        """Write one field."""
        if field.kind in FIXED_FORMATS:
            packed = f"{value}.int.to_bytes(16, 'big')" if field.kind == "uuid" else value
            self.run.append((FIXED_FORMATS[field.kind], packed))
        elif field.kind == "struct":
            self.struct_value(field, value, name)
        else:
            self.sized_value(field, value, name)

    def struct_value(self, field: Field, value: str, name: str) -> None:
        inner = self.fresh("s")
        self.flush()
        self.line(f"{inner} = {value}")
        if not field.is_nullable_in(self.version):
            self.line(f"if {inner} is None: {self.fail(name)}")
            self.struct(field.item, inner)
            return
        # A tagged one is marked by a varint that is 0 for null, others by a byte that is -1.
        null = r"b'\0'" if field.tag is not None else r"b'\xff'"
        self.line(f"if {inner} is None:")
        self.line(f"    {self.out}({null})")
        self.line("else:")
        self.depth += 1
        self.run.append(("b", "1"))
        self.struct(field.item, inner)
        self.flush()
        self.depth -= 1

    def sized_value(self, field: Field, value: str, name: str) -> None:
        """Write something with its length or count before it."""
        nullable = field.is_nullable_in(self.version)
        held = self.fresh("v")
        if nullable:
            self.flush()
            self.line(f"{held} = {value}")
            self.line(f"if {held} is None:")
            null = "00" if self.flexible else "ffff" if field.kind == "string" else "ffffffff"
            self.line(f"    {self.out}({bytes.fromhex(null)!r})")
            self.line("else:")
            self.depth += 1
            self.content(field, held, held, name)
            self.flush()
            self.depth -= 1
        else:
            self.content(field, value, held, name)

    def content(self, field: Field, value: str, held: str, name: str) -> None:
        if field.kind == "string":
            self.line(f"{held} = {value}.encode()")
        elif value != held:
            self.line(f"{held} = {value}")
        if self.flexible:
            length = self.fresh("n")
            self.line(f"{length} = len({held}) + 1")
            self.varint(length)
        else:
            self.run.append(("h" if field.kind == "string" else "i", f"len({held})"))
        if field.kind == "array":
            self.items(field.item, held, name)
        elif field.kind == "records":
            self.flush()
            self.records(held)
        else:
            self.flush()
            self.line(f"{self.out}({held})")

    def records(self, held: str) -> None:
        self.line(f"if parts is None or len({held}) < APART and type({held}) is not FileRange:")
        self.line(f"    {self.out}({held})")
        self.line("else:")
        self.line("    parts.append(join(pieces))")
        self.line("    pieces.clear()")
        self.line(f"    parts.append({held})")

    def items(self, item: Field, held: str, name: str) -> None:
        self.flush()
        if item.kind in FIXED_FORMATS and item.kind != "uuid":
            self.line(f"if {held}: {self.out}(pack_items({FIXED_FORMATS[item.kind]!r}, {held}))")
            return
        one = self.fresh("item")
        self.line(f"for {one} in {held}:")
        self.depth += 1
        if item.kind == "struct" and item.nullable_since is None:
            self.struct(item.item, one)
            if not item.item.fields_declared and not self.flexible:
                self.line("pass")
        else:
            self.value(item, one, name)
        self.flush()
        self.depth -= 1


def _pack_items(letter: str, values: list[Any]) -> bytes:
    # The module's own function keeps the formats it has seen.
    return pack(f">{len(values)}{letter}", *values)
