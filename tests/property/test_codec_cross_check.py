"""Every message of the 53 APIs, in every version and both directions, against kio."""

from __future__ import annotations

from random import Random

from headrace.protocol.api_keys import APIS, request_class, response_class
from headrace.protocol.message import Message
from tests.support import kio_codec
from tests.support.headlines import Headline
from tests.support.message_values import ValueMaker

SAMPLES = 12
MESSAGE_VERSIONS = 476
"""Requests and responses of all 53 APIs, every version of each."""


def message_class(api_key: int, direction: str) -> type[Message]:
    return request_class(api_key) if direction == "request" else response_class(api_key)


def test_every_message_version_has_the_same_bytes_and_values_as_in_kio(headline: Headline) -> None:
    compared = 0
    for key, api in APIS.items():
        for direction in ("request", "response"):
            cls = message_class(key, direction)
            for version in range(api.lowest_version, api.highest_version + 1):
                schema = kio_codec.schema_of(key, version, direction)
                kio_codec.assert_same_shape(cls, schema, version)
                maker = ValueMaker(Random(f"{cls.__name__} {version}"), polite=True)
                for _ in range(SAMPLES):
                    ours = maker.message(cls, version)
                    data = ours.encode(version)
                    theirs = kio_codec.read(schema, data)
                    kio_codec.assert_same_values(ours, theirs, version)
                    again = kio_codec.write(schema, theirs)
                    assert again == data, f"{cls.__name__} v{version}"
                    assert cls.decode(again, version) == ours
                compared += 1
    assert len(APIS) == 53
    assert compared == MESSAGE_VERSIONS
    headline(f"codec cross-check: {compared} message-versions byte-identical with kio")
