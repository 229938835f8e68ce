"""Typed reads without a JVM: error columns, dead letters, pruning."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from headrace.client import EARLIEST, Client, TopicPartition
from headrace.core.errors import HeadraceError
from tests.integration.spark.conftest import Options, TopicMaker
from tests.support.spark_readers import batch_reader, read_all, send

CLICK = StructType().add("user", StringType()).add("item", IntegerType())
JSON = {"valueFormat": "json", "valueSchema": "user string, item int"}
GOOD, BAD = b'{"user":"a","item":1}', b'{"user":'


def letters(client: Client, topic: str, count: int) -> list[Any]:
    """What lies in a dead-letter topic, which must be this many."""
    with client.reader({TopicPartition(topic, 0): EARLIEST}) as reader:
        found = [next(reader) for _ in range(count)]
        assert reader.poll(timeout_ms=50) == {}
    return found


def test_bad_records_are_rows_with_their_bytes_and_what_is_wrong(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, [GOOD, BAD, None])
    rows = read_all(to(subscribe=topic, columns="offset,value,_error,_raw", **JSON), CLICK)
    good, bad, null = rows
    assert good == {"offset": 0, "value": {"user": "a", "item": 1}, "_error": None, "_raw": None}
    assert (bad["offset"], bad["value"], bad["_raw"]) == (1, None, BAD)
    assert "truncated" in bad["_error"]
    assert null == {"offset": 2, "value": None, "_error": None, "_raw": None}


def test_text_values_are_strings(client: Client, topic: str, to: Options) -> None:
    send(client, topic, ["größe".encode(), b"\xff"])
    first, second = read_all(to(subscribe=topic, valueFormat="string"))
    assert (first["value"], first["_error"]) == ("größe", None)
    assert (second["value"], second["_raw"]) == (None, b"\xff")


def test_avro_values_are_columns(client: Client, topic: str, to: Options) -> None:
    fields = [{"name": "user", "type": "string"}, {"name": "item", "type": "int"}]
    schema = {"type": "record", "name": "Click", "fields": fields}
    written = io.BytesIO()
    fastavro.schemaless_writer(written, fastavro.parse_schema(schema), {"user": "a", "item": 7})
    send(client, topic, [written.getvalue(), b"\x02"])
    options = to(subscribe=topic, valueFormat="avro", valueSchema=json.dumps(schema))
    good, bad = read_all(options, CLICK)
    assert (good["value"], good["_error"]) == ({"user": "a", "item": 7}, None)
    assert (bad["value"], bad["_raw"]) == (None, b"\x02")


def test_bad_records_go_to_the_dead_letter_topic_with_where_they_were(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic, dead = make_topic(), make_topic("dead")
    with client.producer() as producer:
        producer.send(topic, GOOD, key=b"k0")
        producer.send(topic, BAD, key=b"k1", headers=[("h", b"1")], timestamp_ms=77)
        producer.send(topic, GOOD)
    rows = read_all(to(subscribe=topic, deadLetterTopic=dead, **JSON), CLICK)
    assert [row["offset"] for row in rows] == [0, 2]
    assert "_error" not in rows[0]
    [letter] = letters(client, dead, 1)
    assert (letter.key, letter.value, letter.timestamp) == (b"k1", BAD, 77)
    headers = dict(letter.headers)
    assert headers["h"] == b"1"
    assert b"truncated" in (headers["headrace.error"] or b"")
    assert headers["headrace.topic"] == topic.encode()
    assert (headers["headrace.partition"], headers["headrace.offset"]) == (b"0", b"1")


def test_a_read_that_is_broken_off_has_sent_its_dead_letters(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic, dead = make_topic(), make_topic("dead")
    send(client, topic, [BAD, GOOD])
    reader = batch_reader(to(subscribe=topic, deadLetterTopic=dead, **JSON), CLICK)
    [task] = reader.partitions()
    batches = reader.read(task)
    next(batches)
    batches.close()  # type: ignore[attr-defined]  # a generator
    assert len(letters(client, dead, 1)) == 1


def test_dead_letters_that_cannot_be_sent_fail_the_task(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, [BAD])
    options = to(subscribe=topic, deadLetterTopic="not/a/topic", **JSON)
    with pytest.raises(HeadraceError, match="not/a/topic"):
        read_all(options, CLICK)


def test_dead_letters_are_found_even_if_values_are_not_looked_at(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic, dead = make_topic(), make_topic("dead")
    send(client, topic, [b"good", b"\xff"])
    options = to(subscribe=topic, valueFormat="string", deadLetterTopic=dead, columns="offset")
    assert read_all(options) == [{"offset": 0}]
    assert [letter.value for letter in letters(client, dead, 1)] == [b"\xff"]
