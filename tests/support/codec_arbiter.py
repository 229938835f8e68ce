"""Apache's own message classes as the judge of our bytes; all questions go to one JVM."""

from __future__ import annotations

import base64
import json
import re
from types import ModuleType
from typing import Any
from uuid import UUID

from headrace.protocol.api_keys import APIS
from headrace.protocol.message import Message, Struct
from headrace.protocol.schemas import (
    consumer_groups,
    consumer_protocol,
    group_offsets,
    metadata_cluster,
    metadata_nodes,
    metadata_security,
    metadata_topics,
    quorum,
    transaction_log,
)
from tests.support.kafka_tools import KafkaTools

_CLIENTS = "org.apache.kafka.common.message."
_METADATA = "org.apache.kafka.common.metadata."
_PACKAGES: dict[ModuleType, str] = {
    metadata_cluster: _METADATA,
    metadata_nodes: _METADATA,
    metadata_security: _METADATA,
    metadata_topics: _METADATA,
    quorum: _CLIENTS,
    consumer_protocol: _CLIENTS,
    group_offsets: "org.apache.kafka.coordinator.group.generated.",
    consumer_groups: "org.apache.kafka.coordinator.group.generated.",
    transaction_log: "org.apache.kafka.coordinator.transaction.generated.",
}
# Classes that live elsewhere than the others of their module.
_ELSEWHERE = {
    "EndTxnMarker": _CLIENTS + "EndTxnMarker",
    "QuorumStateData": "org.apache.kafka.raft.generated.QuorumStateData",
}


def stored_messages() -> dict[str, type[Message]]:
    """Every message of `protocol.schemas`, by the name of Apache's class for it."""
    found: dict[str, type[Message]] = {}
    for module, package in _PACKAGES.items():
        for name, cls in vars(module).items():
            if isinstance(cls, type) and issubclass(cls, Message) and cls is not Message:
                found[_ELSEWHERE.get(name, package + name)] = cls
    return found


def java_name(api_key: int, direction: str) -> str:
    """Apache's class for the request or response of an API."""
    return f"{_CLIENTS}{APIS[api_key].name}{direction.capitalize()}Data"


def ask(kafka_tools: KafkaTools, questions: list[str]) -> list[str]:
    """One answer per question; see CodecArbiter.java for what can be asked."""
    text = "".join(question + "\n" for question in questions)
    answers = kafka_tools.run_program("CodecArbiter", text=text).checked().splitlines()
    assert len(answers) == len(questions)
    return answers


def assert_agrees(ours: Message, version: int, data: bytes, answer: str) -> None:
    """The arbiter read what we meant and would have written the same bytes."""
    where = f"{type(ours).__name__} v{version}"
    assert not answer.startswith("!"), f"{where}: {answer}"
    written, _, values = answer.partition(" ")
    assert bytes.fromhex(written) == data, where
    _assert_same(ours, json.loads(values), version, where)


def _assert_same(ours: Struct, theirs: dict[str, Any], version: int, where: str) -> None:
    left = {_plain(name): value for name, value in theirs.items()}
    for name, field in ours.fields_declared.items():
        if not field.is_in(version):
            continue
        mine = getattr(ours, name)
        if field.kind == "records":
            size = left.pop(_plain(name) + "sizeinbytes", None)
            left.pop(_plain(name), None)
            assert size == (None if mine is None else len(mine)), f"{where}.{name}"
        elif field.tag is not None and _plain(name) not in left:
            absent = [] if isinstance(field.default, tuple) else field.default
            assert isinstance(mine, Struct) or mine == absent, f"{where}.{name}"
        else:
            _assert_same_value(mine, left.pop(_plain(name)), version, f"{where}.{name}")
    assert not left, f"{where}: Apache also has {sorted(left)}"


def _assert_same_value(mine: Any, other: Any, version: int, where: str) -> None:
    if isinstance(mine, Struct):
        _assert_same(mine, other, version, where)
    elif isinstance(mine, list):
        assert len(mine) == len(other), where
        for one, another in zip(mine, other, strict=True):
            _assert_same_value(one, another, version, where)
    elif isinstance(mine, bytes):
        assert mine == base64.b64decode(other), where
    elif isinstance(mine, UUID):
        assert mine.bytes == base64.urlsafe_b64decode(other + "=="), where
    else:
        assert mine == other, where


def _plain(name: str) -> str:
    return re.sub("_", "", name).lower()
