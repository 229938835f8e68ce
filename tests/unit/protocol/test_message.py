"""What a declared message can do besides travel: be made, compared, shown, refused."""

from __future__ import annotations

import pickle
from typing import Any, get_type_hints
from uuid import UUID

import pytest

from headrace.core.errors import MalformedMessage, UnencodableMessage
from headrace.core.files import Buffer
from headrace.protocol.api_keys import APIS, request_class, response_class
from headrace.protocol.fields import Field, array, int16, int32, string, struct
from headrace.protocol.message import Message, Struct, message
from headrace.protocol.messages.create_topics import CreatableTopicResult
from headrace.protocol.messages.fetch import EpochEndOffset, FetchRequest, PartitionData
from headrace.protocol.messages.heartbeat import HeartbeatRequest
from tests.support.codec_arbiter import stored_messages


class Row(Struct):
    """A nested struct for these tests."""

    name: str = string()
    extra: int = int32(since=1, default=-1)


@message(versions=(0, 2), flexible_from=2)
class Sheet(Message):
    """A message for these tests."""

    title: str | None = string(nullable=1, default=None)
    rows: list[Row] = array(Row)
    codes: list[int] = array(int16(), default=())
    remark: str = string(since=2, tag=0, default="none")
    first: Row | None = struct(Row, since=2, tag=1, nullable=True, default=None)


def every_message() -> list[type[Message]]:
    apis = [load(key) for key in APIS for load in (request_class, response_class)]
    return apis + list(stored_messages().values())


def test_a_field_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="rows"):
        Sheet()  # type: ignore[call-arg]  # the missing argument is what is tested


def test_fields_are_keywords_only_and_unknown_ones_are_refused() -> None:
    with pytest.raises(TypeError):
        HeartbeatRequest(group="g")  # type: ignore[call-arg]  # the wrong name is what is tested


def test_a_default_list_is_not_shared_between_messages() -> None:
    one, other = Sheet(rows=[]), Sheet(rows=[])
    one.codes.append(1)
    assert other.codes == []


def test_null_can_be_given_where_the_default_is_an_empty_list() -> None:
    assert CreatableTopicResult(name="t").configs == []
    assert CreatableTopicResult(name="t", configs=None).configs is None


def test_messages_are_equal_by_value_and_not_hashable() -> None:
    assert Sheet(rows=[Row(name="a")]) == Sheet(rows=[Row(name="a")])
    assert Sheet(rows=[Row(name="a")]) != Sheet(rows=[Row(name="b")])
    assert Sheet(rows=[]) != Row(name="a")
    with pytest.raises(TypeError):
        hash(Sheet(rows=[]))


def test_a_message_shows_its_fields() -> None:
    assert repr(Row(name="a")) == "Row(name='a', extra=-1)"


def test_a_message_has_no_room_for_misspelt_fields() -> None:
    with pytest.raises(AttributeError):
        Row(name="a").nmae = "b"  # type: ignore[attr-defined]  # the typo is what is tested


def test_a_message_survives_pickling() -> None:
    sheet = Sheet(rows=[Row(name="a")], codes=[1])
    assert pickle.loads(pickle.dumps(sheet)) == sheet


def test_an_absent_nested_struct_is_one_shared_default_that_refuses_changes() -> None:
    partition = PartitionData(partition_index=0, high_watermark=0)
    assert partition.diverging_epoch == EpochEndOffset()
    assert partition.diverging_epoch.end_offset == -1
    with pytest.raises(AttributeError, match="assign a new one"):
        partition.diverging_epoch.end_offset = 5
    partition.diverging_epoch = EpochEndOffset(epoch=1, end_offset=5)
    assert PartitionData(partition_index=0, high_watermark=0).diverging_epoch.end_offset == -1


def test_fields_a_version_lacks_read_as_their_defaults() -> None:
    sheet = Sheet(title="t", rows=[Row(name="a", extra=9)], codes=[7], remark="r")
    read = Sheet.decode(sheet.encode(0), 0)
    assert read == Sheet(title="t", rows=[Row(name="a")], codes=[7])


def test_tags_are_left_out_at_their_defaults() -> None:
    plain = Sheet(rows=[]).encode(2)
    assert plain[-1] == 0
    marked = Sheet(rows=[], remark="x", first=Row(name="a", extra=0))
    assert marked.encode(2) == plain[:-1] + bytes.fromhex(
        "02 00 02 02 78 01 08 01 02 61 00000000 00"
    )
    assert Sheet.decode(marked.encode(2), 2) == marked


def test_unknown_tags_are_skipped() -> None:
    data = Sheet(rows=[]).encode(2)[:-1] + bytes.fromhex("02 07 03 010203 00 02 02 78")
    assert Sheet.decode(data, 2) == Sheet(rows=[], remark="x")


def test_a_known_tag_of_the_wrong_length_is_malformed() -> None:
    data = Sheet(rows=[]).encode(2)[:-1] + bytes.fromhex("01 00 03 02 78 00")
    with pytest.raises(MalformedMessage, match="wrong length"):
        Sheet.decode(data, 2)


def test_null_is_refused_where_a_version_does_not_allow_it() -> None:
    with pytest.raises(UnencodableMessage, match="v0"):
        Sheet(rows=[]).encode(0)
    with pytest.raises(MalformedMessage, match="title must not be null"):
        Sheet.decode(bytes.fromhex("ffff 00000000 00000000"), 0)
    assert Sheet.decode(bytes.fromhex("ffff 00000000 00000000"), 1) == Sheet(rows=[])


def test_a_length_below_minus_one_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="negative"):
        Sheet.decode(bytes.fromhex("fffe 00000000 00000000"), 1)


@pytest.mark.parametrize("data", ["0005 6161", "0001 61 00000001 0009 61"])
def test_text_that_runs_past_the_end_is_refused_at_once(data: str) -> None:
    with pytest.raises(MalformedMessage, match="runs past the end"):
        Sheet.decode_from(bytes.fromhex(data), 0)


def test_more_items_than_bytes_are_refused_before_any_is_read() -> None:
    with pytest.raises(MalformedMessage, match="rows has more items than bytes"):
        Sheet.decode(bytes.fromhex("0000 00000002 0001 61"), 0)
    with pytest.raises(MalformedMessage, match="codes has more items than bytes"):
        Sheet.decode(bytes.fromhex("01 01 ff ff ff ff 0f"), 2)


def test_a_value_too_large_for_its_type_is_refused() -> None:
    with pytest.raises(UnencodableMessage, match="Sheet v1"):
        Sheet(rows=[], codes=[1 << 15]).encode(1)
    with pytest.raises(UnencodableMessage):
        Sheet(title="x" * 40_000, rows=[]).encode(1)


@pytest.mark.parametrize("version", [-1, 3])
def test_versions_out_of_range_are_refused_both_ways(version: int) -> None:
    with pytest.raises(MalformedMessage, match="no version"):
        Sheet.decode(b"", version)
    with pytest.raises(UnencodableMessage, match="no version"):
        Sheet(rows=[]).encode(version)


def test_bytes_left_over_are_malformed_unless_asked_for() -> None:
    data = Sheet(rows=[]).encode(1) + b"tail"
    with pytest.raises(MalformedMessage, match="4 bytes left over"):
        Sheet.decode(data, 1)
    assert Sheet.decode_from(data, 1) == (Sheet(rows=[]), len(data) - 4)


def test_decoding_starts_at_the_position_given() -> None:
    assert Sheet.decode(b"head" + Sheet(rows=[]).encode(1), 1, 4) == Sheet(rows=[])


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_kind_of_buffer_can_be_read(kind: Any) -> None:
    sheet = Sheet(title="t", rows=[Row(name="é")], codes=[1, -1])
    assert Sheet.decode(kind(sheet.encode(2)), 2) == Sheet(
        title="t", rows=[Row(name="é")], codes=[1, -1]
    )


def test_annotations_say_what_the_wire_type_gives() -> None:
    """mypy trusts the annotation, the codec the declaration: they must not differ."""
    checked = 0
    structs: set[Any] = set(every_message())
    while structs:
        cls = structs.pop()
        hints = get_type_hints(cls)
        for name, field in cls.fields_declared.items():
            assert hints[name] == _annotation(field), f"{cls.__name__}.{name}"
            item = field.item if field.kind == "array" else field
            if item.kind == "struct":
                structs.add(item.item)
            checked += 1
    assert checked > 1000


def _annotation(field: Field) -> Any:
    names: dict[str, Any] = {
        "boolean": bool,
        "float64": float,
        "string": str,
        "bytes": bytes,
        "uuid": UUID,
        "records": Buffer,
    }
    if field.kind == "array":
        plain: Any = list[_annotation(field.item)]  # type: ignore[misc]  # made at run time
    elif field.kind == "struct":
        plain = field.item
    else:
        plain = names.get(field.kind, int)
    return plain | None if field.nullable_since is not None else plain


def test_every_request_can_be_made_with_its_required_fields_only() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[])
    assert (request.session_epoch, request.replica_state.replica_id) == (-1, -1)
