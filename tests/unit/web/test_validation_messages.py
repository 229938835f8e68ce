"""Whoever sends a wrong value is told which ones are right."""

from typing import Any

import msgspec
import pytest

from headrace.web import bodies
from headrace.web.consumer_types import NewInstance
from headrace.web.errors import HttpError
from headrace.web.groups import Reset
from headrace.web.produce import ProduceBody, ProduceQuery
from headrace.web.route_handler import read_query
from headrace.web.topics import ChangeQuery, DeleteRecordsQuery, TopicIn, TopicsQuery


@pytest.mark.parametrize(
    ("query", "kind", "allowed"),
    [
        (b"acks=5", ProduceQuery, "one of -1, 0, 1, all"),
        (b"timeout_ms=0", ProduceQuery, "an integer from 1 to 600000"),
        (b"timeout_ms=soon", ProduceQuery, "an integer from 1 to 600000"),
        (b"before=-2", DeleteRecordsQuery, f"an integer from -1 to {2**63 - 1}"),
        (b"internal=maybe", TopicsQuery, "true or false"),
        (b"colour=red", ChangeQuery, "an object with dry_run (optional)"),
    ],
)
def test_a_query_is_told_what_it_may_say(query: bytes, kind: Any, allowed: str) -> None:
    with pytest.raises(HttpError) as told:
        read_query(query, kind)
    assert told.value.message.endswith(f"; allowed: {allowed}")


@pytest.mark.parametrize(
    ("body", "kind", "allowed"),
    [
        (b'{"name":""}', TopicIn, "text of 1 to 249 characters"),
        (b'{"name":"t","partitions":0}', TopicIn, f"an integer from 1 to {2**31 - 1}, or null"),
        (b'{"name":"t","configs":{"a":1}}', TopicIn, "text, or null"),
        (b'{"records":[]}', ProduceBody, "a list of at least 1 items"),
        (
            b'{"records":[{"value":1},{"partition":-1}]}',
            ProduceBody,
            f"an integer from 0 to {2**31 - 1}, or null",
        ),
        (
            b'{"records":[{"headers":[{"name":"n","format":"xml"}]}]}',
            ProduceBody,
            "one of binary, json, text",
        ),
        (b'{"auto.commit.enable":3}', NewInstance, "true or false, or null"),
        (b'{"to":"middle"}', Reset, "one of earliest, latest, or null"),
    ],
)
def test_a_body_is_told_what_it_may_hold(body: bytes, kind: Any, allowed: str) -> None:
    with pytest.raises(HttpError) as told:
        bodies.decode(msgspec.json.Decoder(kind), body)
    assert told.value.message.endswith(f"; allowed: {allowed}")
