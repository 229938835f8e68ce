"""Typed reads without a JVM: error columns, dead letters, pruning."""

from __future__ import annotations

import io
import json
import time
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, StringType, StructType

from headrace.client import EARLIEST, Client, TopicPartition
from headrace.core.errors import HeadraceError, InvalidConfig
from headrace.spark.dead_letters import DeadLetters
from headrace.spark.fetch import fetch
from headrace.spark.offsets import Range
from headrace.spark.options import source_options
from headrace.spark.rows import RowBuilder
from tests.integration.spark.conftest import Options, TopicMaker
from tests.support.spark_readers import batch_reader, read_all, send, stream_reader

CLICK = StructType().add("user", StringType()).add("item", IntegerType())
JSON = {"valueFormat": "json", "valueSchema": "user string, item int"}
VALUE = pa.struct([("user", pa.string()), ("item", pa.int32())])
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
    assert (letter.key, letter.value) == (b"k1", BAD)
    assert letter.timestamp > time.time() * 1000 - 60_000, "retention would take an old one at once"
    headers = dict(letter.headers)
    assert headers["headrace.timestamp"] == b"77"
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


@pytest.mark.parametrize(("most", "kept"), [(300_000, 256 * 1024), (6_000, 1024)])
def test_a_letter_that_its_topic_does_not_take_is_cut_and_says_so(
    client: Client, make_topic: TopicMaker, to: Options, most: int, kept: int
) -> None:
    topic, dead = make_topic(), make_topic("dead", max_message_bytes=str(most))
    large = b"z" * 500_000
    send(client, topic, [BAD, large, BAD], key=b"k", headers=[("h", b"1")])
    assert read_all(to(subscribe=topic, deadLetterTopic=dead, **JSON), CLICK) == []
    found = {dict(each.headers)["headrace.offset"]: each for each in letters(client, dead, 3)}
    whole, cut = found[b"0"], found[b"1"]
    assert (whole.value, dict(whole.headers).get("headrace.cut")) == (BAD, None)
    assert (cut.key, cut.value) == (b"k", large[:kept])
    assert dict(cut.headers)["headrace.cut"] == b"value of 500000 bytes"
    assert dict(cut.headers)["h"] == b"1"


def test_letters_that_are_safe_are_kept_no_longer(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic, dead = make_topic(), make_topic("dead")
    send(client, topic, [BAD] * 1000, headers=[("pad", bytes(500))])
    options = source_options(
        to(
            subscribe=topic,
            deadLetterTopic=dead,
            kafka__max__partition__fetch__bytes=10_000,
            **JSON,
        ),
        streaming=False,
    )
    waiting = []
    with Client(options.client) as reads, DeadLetters(options.client, dead) as sent:
        maker = RowBuilder(pa.schema([("value", VALUE)]), options.values, sent.send)
        for fetched in fetch(reads, options, [Range(TopicPartition(topic, 0), 0, 1000)]):
            assert not sum(batch.num_rows for batch in maker.batches(fetched))
            assert sent._producer is not None
            sent._producer.flush()
            waiting.append(len(sent._sent))
    assert len(waiting) > 3
    assert max(waiting) < 200, "at most those of one fetch, all of which are finished by the next"
    assert len(letters(client, dead, 1000)) == 1000


def test_what_a_task_failed_of_is_not_hidden_by_its_letters(to: Options) -> None:
    options = source_options(to(subscribe="t"), streaming=False)

    class Unsettled(DeadLetters):
        def settle(self) -> None:
            raise AssertionError("nobody waits for letters that are sent again")

    with pytest.raises(ZeroDivisionError) as raised, Unsettled(options.client, "dead"):
        _ = 1 // 0
    assert raised.value.__context__ is None


def test_dead_letters_that_cannot_be_sent_fail_the_task(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, [BAD])
    options = to(subscribe=topic, deadLetterTopic="not/a/topic", **JSON)
    with pytest.raises(HeadraceError, match="not/a/topic"):
        read_all(options, CLICK)


def test_a_topic_of_dead_letters_that_does_not_exist_is_refused_and_not_made(
    client: Client, topic: str, to: Options
) -> None:
    send(client, topic, [BAD])
    options = to(subscribe=topic, deadLetterTopic="no.such.letters", **JSON)
    said = "deadLetterTopic='no.such.letters' does not exist"
    with pytest.raises(InvalidConfig, match=said):
        read_all(options, CLICK)
    stream = stream_reader(options, CLICK)
    with pytest.raises(InvalidConfig, match=said):
        stream.initialOffset()
    stream.stop()
    assert "no.such.letters" not in {each.name for each in client.admin.list_topics()}


def test_dead_letters_are_found_even_if_values_are_not_looked_at(
    client: Client, make_topic: TopicMaker, to: Options
) -> None:
    topic, dead = make_topic(), make_topic("dead")
    send(client, topic, [b"good", b"\xff"])
    options = to(subscribe=topic, valueFormat="string", deadLetterTopic=dead, columns="offset")
    assert read_all(options) == [{"offset": 0}]
    assert [letter.value for letter in letters(client, dead, 1)] == [b"\xff"]
