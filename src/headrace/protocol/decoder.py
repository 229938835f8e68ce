"""Writes, for one version of a message, the Python source that reads it.

Neighbouring fields of fixed size are read by one `unpack_from`; nested structs and arrays are
written out in place. Every length is checked against the bytes that remain before anything of
that length is made, so a lying length costs nothing: the check for an array counts the fewest
bytes its items can take, and the caller says how many items all arrays together may have.
"""

from collections.abc import Callable
from struct import Struct as Format
from struct import calcsize, unpack_from
from typing import Any

from headrace.core.errors import MalformedMessage, TooManyItems
from headrace.core.files import Buffer
from headrace.protocol.constructor import default_expression
from headrace.protocol.fields import FIXED_FORMATS, Field
from headrace.protocol.wire import decode_varint, finish_varint, skip_tagged_fields, uuid_from

Decoder = Callable[[Buffer, int, int], tuple[Any, int]]


def compile_decoder(cls: Any, version: int) -> Decoder:
    """A function from (buffer, position, items allowed) to (message, position after it)."""
    schema = cls.schema
    if not schema.lowest_version <= version <= schema.highest_version:
        raise MalformedMessage(f"{cls.__name__} has no version {version}")
    writer = _DecoderWriter(cls.__name__, version, schema.is_flexible(version))
    return writer.compile(cls)


def minimum_size(field: Field, version: int, flexible: bool) -> int:
    """The fewest bytes one value of this field can take."""
    if field.kind in FIXED_FORMATS:
        return calcsize(">" + FIXED_FORMATS[field.kind])
    if field.kind == "struct":
        if field.is_nullable_in(version):
            return 1
        total = 1 if flexible else 0
        for inner in field.item.fields_declared.values():
            if inner.is_in(version) and inner.tag is None:
                total += minimum_size(inner, version, flexible)
        return total
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4


class _DecoderWriter:
    """Collects the source lines of one decoder."""

    def __init__(self, name: str, version: int, flexible: bool) -> None:
        self.name = name
        self.version = version
        self.flexible = flexible
        self.lines: list[str] = []
        self.depth = 1
        self.names_used = 0
        # Fixed-size fields read so far but not yet unpacked: (format letter, target, conversion).
        self.run: list[tuple[str, str, str | None]] = []
        self.scope: dict[str, Any] = {
            "finish_varint": finish_varint,
            "decode_varint": decode_varint,
            "skip_tagged_fields": skip_tagged_fields,
            "uuid_from": uuid_from,
            "unpack_from": unpack_from,
            "new": object.__new__,
            "Malformed": MalformedMessage,
            "TooMany": TooManyItems,
        }

    def compile(self, cls: Any) -> Decoder:
        self.line("size = len(buffer)")
        target = self.struct(cls)
        self.flush()
        self.line(f"return {target}, position")
        source = "def decode(buffer, position, items_left):\n" + "\n".join(self.lines)
        exec(compile(source, f"<{self.name} v{self.version} decoder>", "exec"), self.scope)
        decoder: Decoder = self.scope["decode"]
        return decoder

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, stem: str) -> str:
        self.names_used += 1
        return f"{stem}{self.names_used}"

    def fail(self, what: str, where: str, error: str = "Malformed") -> str:
        return f"raise {error}({f'{self.name} v{self.version}: {where} {what}'!r})"

    def flush(self) -> None:
        """Unpack the fixed-size fields collected so far."""
        if not self.run:
            return
        letters = "".join(letter for letter, _, _ in self.run)
        unpack = f"unpack_{letters.replace('?', 'o')}"
        self.scope[unpack] = Format(">" + letters).unpack_from
        targets = ", ".join(target for _, target, _ in self.run)
        comma = "," if len(self.run) == 1 else ""
        self.line(f"{targets}{comma} = {unpack}(buffer, position)")
        self.line(f"position += {calcsize('>' + letters)}")
        for _, target, conversion in self.run:
            if conversion:
                self.line(conversion.format(target))
        self.run = []

    def struct(self, cls: Any) -> str:
        """Read a struct; returns the variable that holds it."""
        target = self.fresh("s")
        self.scope[cls.__name__] = cls
        self.line(f"{target} = new({cls.__name__})")
        tagged: list[tuple[str, Field]] = []
        for name, field in cls.fields_declared.items():
            if not field.is_in(self.version):
                self.line(f"{target}.{name} = {default_expression(field, self.scope)}")
            elif field.tag is not None:
                self.line(f"{target}.{name} = {default_expression(field, self.scope)}")
                tagged.append((name, field))
            else:
                self.value(field, f"{target}.{name}", name)
        if self.flexible:
            self.tags(target, tagged)
        return target

    def varint(self, stem: str) -> str:
        self.flush()
        target = self.fresh(stem)
        self.line(f"{target} = buffer[position]")
        self.line("position += 1")
        self.line(
            f"if {target} > 127: {target}, position = finish_varint(buffer, position, {target})"
        )
        return target

    def tags(self, target: str, tagged: list[tuple[str, Field]]) -> None:
        count = self.varint("n")
        self.line(f"if {count}:")
        self.depth += 1
        if not tagged:
            self.line(f"position = skip_tagged_fields(buffer, position, {count})")
        else:
            tag, length, end = self.fresh("tag"), self.fresh("length"), self.fresh("end")
            self.line(f"for _ in range({count}):")
            self.depth += 1
            self.line(f"{tag}, position = decode_varint(buffer, position)")
            self.line(f"{length}, position = decode_varint(buffer, position)")
            self.line(f"{end} = position + {length}")
            self.line(f"if {end} > size: {self.fail('runs past the end', 'tagged field')}")
            word = "if"
            for name, field in tagged:
                self.line(f"{word} {tag} == {field.tag}:")
                word = "elif"
                self.depth += 1
                self.value(field, f"{target}.{name}", name)
                self.flush()
                self.depth -= 1
            self.line("else:")
            self.line(f"    position = {end}")
            wrong = self.fail("has a wrong length", "tagged field")
            self.line(f"if position != {end}: {wrong}")
            self.depth -= 1
        self.depth -= 1

    def value(self, field: Field, target: str, name: str) -> None:
        """Read one field into `target`."""
        if field.kind in FIXED_FORMATS:
            conversion = "{0} = uuid_from({0})" if field.kind == "uuid" else None
            self.run.append((FIXED_FORMATS[field.kind], target, conversion))
        elif field.kind == "struct":
            self.struct_value(field, target)
        else:
            self.sized_value(field, target, name)

    def struct_value(self, field: Field, target: str) -> None:
        if not field.is_nullable_in(self.version):
            inner = self.struct(field.item)
            self.line(f"{target} = {inner}")
            return
        present = self.fresh("present")
        self.run.append(("b", present, None))
        self.flush()
        # A tagged one is marked by a varint that is 0 for null, others by a byte that is -1.
        self.line(f"if {present} < {0 if field.tag is None else 1}:")
        self.line(f"    {target} = None")
        self.line("else:")
        self.depth += 1
        inner = self.struct(field.item)
        self.flush()
        self.line(f"{target} = {inner}")
        self.depth -= 1

    def sized_value(self, field: Field, target: str, name: str) -> None:
        """Read something with its length or count before it; null is -1, or 0 if compact."""
        nullable = field.is_nullable_in(self.version)
        if self.flexible:
            length = self.varint("n")
            self.line(f"if not {length}:")
        else:
            length = self.fresh("n")
            self.run.append(("h" if field.kind == "string" else "i", length, None))
            self.flush()
            self.line(f"if {length} < 0:")
            if nullable:
                self.line(f"    if {length} != -1: {self.fail('has a negative length', name)}")
        null = f"{target} = None" if nullable else self.fail("must not be null", name)
        self.line(f"    {null}")
        self.line("else:")
        self.depth += 1
        if self.flexible:
            self.line(f"{length} -= 1")
        if field.kind == "array":
            self.items(field.item, length, target, name)
        else:
            self.slice(field.kind, length, target, name)
        self.flush()
        self.depth -= 1

    def slice(self, kind: str, length: str, target: str, name: str) -> None:
        end = self.fresh("end")
        self.line(f"{end} = position + {length}")
        self.line(f"if {end} > size: {self.fail('runs past the end', name)}")
        cut = f"buffer[position:{end}]"
        if kind == "string":
            self.line(f"{target} = str({cut}, 'utf-8')")
        elif kind == "bytes":
            self.line(f"{target} = bytes({cut})")
        else:
            self.line(f"{target} = memoryview(buffer)[position:{end}]")
        self.line(f"position = {end}")

    def items(self, item: Field, count: str, target: str, name: str) -> None:
        smallest = max(1, minimum_size(item, self.version, self.flexible))
        product = count if smallest == 1 else f"{count} * {smallest}"
        self.line(f"if {product} > size - position: {self.fail('has more items than bytes', name)}")
        self.line(f"items_left -= {count}")
        self.line(f"if items_left < 0: {self.fail('has too many items', name, 'TooMany')}")
        if item.kind in FIXED_FORMATS and item.kind != "uuid":
            letter = FIXED_FORMATS[item.kind]
            self.line(f"{target} = list(unpack_from(f'>{{{count}}}{letter}', buffer, position))")
            self.line(f"position += {product}")
            return
        values = self.fresh("values")
        self.line(f"{values} = []")
        self.line(f"for _ in range({count}):")
        self.depth += 1
        if item.kind == "struct" and item.nullable_since is None:
            self.line(f"{values}.append({self._struct_item(item)})")
        else:
            one = self.fresh("item")
            self.value(item, one, name)
            self.flush()
            self.line(f"{values}.append({one})")
        self.depth -= 1
        self.line(f"{target} = {values}")

    def _struct_item(self, item: Field) -> str:
        inner = self.struct(item.item)
        self.flush()
        return inner
