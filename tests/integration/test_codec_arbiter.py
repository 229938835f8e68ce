"""Our bytes before Apache's own classes: what kio has no schema for, and what it refuses."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headrace.protocol.api_keys import APIS, request_class, response_class
from headrace.protocol.frames import encode_request, encode_response
from headrace.protocol.message import Message
from tests.support.codec_arbiter import ask, assert_agrees, java_name, stored_messages
from tests.support.groups import required
from tests.support.headlines import Headline
from tests.support.kafka_tools import KafkaTools
from tests.support.message_values import ValueMaker

SAMPLES = 4
STORED_MESSAGE_VERSIONS = 85
API_MESSAGE_VERSIONS = 476


@pytest.fixture(scope="module")
def kafka_tools() -> KafkaTools:
    return required(KafkaTools)


def api_messages() -> dict[str, type[Message]]:
    """Requests and responses of all APIs, by the name of Apache's class."""
    classes = {java_name(key, "request"): request_class(key) for key in APIS}
    return classes | {java_name(key, "response"): response_class(key) for key in APIS}


def has_tags(cls: Any) -> bool:
    """Whether the class or something in it has a tagged field."""
    for field in cls.fields_declared.values():
        item = field.item if field.kind == "array" else field
        if field.tag is not None or (item.kind == "struct" and has_tags(item.item)):
            return True
    return False


def compare(
    kafka_tools: KafkaTools, classes: dict[str, type[Message]], *, likely_defaults: bool = False
) -> int:
    """How many message-versions were compared; raises at the first that differs."""
    cases: list[tuple[Message, int, bytes]] = []
    questions: list[str] = []
    compared = 0
    for name, cls in classes.items():
        for version in range(cls.schema.lowest_version, cls.schema.highest_version + 1):
            random = Random(f"{cls.__name__} {version}")
            maker = ValueMaker(random, polite=False, likely_defaults=likely_defaults)
            compared += 1
            for _ in range(3 * SAMPLES if likely_defaults else SAMPLES):
                ours = maker.message(cls, version)
                data = ours.encode(version)
                assert cls.decode(data, version) == ours
                cases.append((ours, version, data))
                questions.append(f"M {name} {version} {data.hex()}")
    answers = ask(kafka_tools, questions)
    for (ours, version, data), answer in zip(cases, answers, strict=True):
        assert_agrees(ours, version, data, answer)
    return compared


def test_stored_records_of_every_version_are_what_apache_reads_and_writes(
    kafka_tools: KafkaTools, headline: Headline
) -> None:
    compared = compare(kafka_tools, stored_messages())
    assert compared == STORED_MESSAGE_VERSIONS
    headline(f"codec arbiter: {compared} stored message-versions byte-identical with Apache's")


def test_messages_of_every_version_are_what_apache_reads_and_writes(
    kafka_tools: KafkaTools, headline: Headline
) -> None:
    compared = compare(kafka_tools, api_messages())
    assert compared == API_MESSAGE_VERSIONS
    headline(f"codec arbiter: {compared} API message-versions byte-identical with Apache's")


def test_tags_are_left_out_exactly_when_apache_leaves_them_out(kafka_tools: KafkaTools) -> None:
    classes = api_messages() | stored_messages()
    tagged = {name: cls for name, cls in classes.items() if has_tags(cls)}
    assert len(tagged) > 15
    compare(kafka_tools, tagged, likely_defaults=True)


def test_the_version_ranges_are_those_of_apache(kafka_tools: KafkaTools) -> None:
    classes = api_messages() | stored_messages()
    answers = ask(kafka_tools, [f"V {name}" for name in classes])
    for (name, cls), answer in zip(classes.items(), answers, strict=True):
        lowest, highest = map(int, answer.split())
        # Version 6 of InitProducerId is marked unstable in 4.3, so no broker offers it.
        expected = 5 if "InitProducerId" in name else highest
        assert (cls.schema.lowest_version, cls.schema.highest_version) == (lowest, expected), name


def test_the_headers_of_every_version_are_those_of_apache(kafka_tools: KafkaTools) -> None:
    cases = [
        (key, version)
        for key, api in APIS.items()
        for version in range(api.lowest_version, api.highest_version + 1)
    ]
    answers = ask(kafka_tools, [f"H {key} {version}" for key, version in cases])
    for (key, version), answer in zip(cases, answers, strict=True):
        maker = ValueMaker(Random(f"{key} {version}"), polite=False)
        request = maker.message(request_class(key), version)
        response = maker.message(response_class(key), version)
        framed = encode_request(request, version, 7, "me")
        answered = encode_response(response, version, 7)
        # Headers are: key, version, correlation, client id (2 + 2) and a tag count from v2 on;
        # correlation and a tag count from v1 on.
        request_header = len(framed) - 4 - len(request.encode(version)) - 11
        response_header = len(answered) - 4 - len(response.encode(version)) - 4
        assert answer == f"{request_header} {response_header}", (key, version)
