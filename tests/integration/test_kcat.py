"""kcat from the distribution: an older librdkafka with its own ideas of what a broker offers."""

from __future__ import annotations

import json
import subprocess
import uuid

import pytest

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.records.header import parse_header
from tests.differential.peer import Peer
from tests.support import tools
from tests.support.brokers import BrokerProcess
from tests.support.groups import required
from tests.support.topics import CODECS, Topics

_PATIENCE_SECONDS = 60
_CODEC_NUMBERS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


def kcat(broker: BrokerProcess, *options: str, text: str = "") -> str:
    """Run kcat against the broker; its output."""
    program = str(required(tools.kcat))
    done = subprocess.run(
        [program, "-b", broker.bootstrap_servers, *options],
        input=text,
        capture_output=True,
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("codec", CODECS)
def test_trap_01_kcat_compresses_because_produce_is_advertised_from_zero(
    broker: BrokerProcess, topic: str, codec: str
) -> None:
    """It asks for Produce v0 before it uses gzip, snappy or lz4; without, it sends plain bytes."""
    lines = "".join(f"key{number}:{'value' * 20}{number}\n" for number in range(50))
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, text=lines)
    read = kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%k:%s\n")
    assert read == lines
    log = (broker.partition_dir(topic) / f"{0:020}.log").read_bytes()
    expected = _CODEC_NUMBERS[codec]
    if codec == "lz4" and not _advertises_find_coordinator(broker):
        # This librdkafka ties lz4 to FindCoordinator v0, which comes with consumer groups.
        expected = _CODEC_NUMBERS["none"]
    assert parse_header(log, 0).attributes & 7 == expected


def _advertises_find_coordinator(broker: BrokerProcess) -> bool:
    peer = Peer(broker)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = peer.quietly(request, 3, ApiVersionsResponse)
    peer.disconnect()
    return ApiKey.FIND_COORDINATOR in {each.api_key for each in answer.api_keys}


def test_headers_keys_and_null_values_come_back(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-K:", "-Z", "-H", "a=1", "-H", "b=two", text="k1:v1\nk2:\n")
    read = kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J")
    messages = [json.loads(line) for line in read.splitlines()]
    assert [(each["key"], each["payload"]) for each in messages] == [("k1", "v1"), ("k2", None)]
    assert messages[0]["headers"] == ["a", "1", "b", "two"]
    assert [each["offset"] for each in messages] == [0, 1]


def test_metadata_lists_brokers_and_topics(broker: BrokerProcess, topics: Topics) -> None:
    topic = topics.create(f"kcat-{uuid.uuid4().hex}", 3)
    listed = json.loads(kcat(broker, "-L", "-J", "-t", topic))
    assert [each["name"] for each in listed["brokers"]] == [broker.bootstrap_servers]
    assert len(listed["topics"][0]["partitions"]) == 3
    everything = json.loads(kcat(broker, "-L", "-J"))
    assert topic in {each["topic"] for each in everything["topics"]}


def test_offsets_are_queried_by_time(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", text="one\ntwo\nthree\n")
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").strip().endswith("offset 3")
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-2").strip().endswith("offset 0")
    assert kcat(broker, "-Q", "-t", f"{topic}:0:1").strip().endswith("offset 0")


def test_an_idempotent_kcat_is_served(broker: BrokerProcess, topic: str) -> None:
    kcat(broker, "-P", "-t", topic, "-p", "0", "-X", "enable.idempotence=true", text="a\nb\nc\n")
    assert kcat(broker, "-C", "-t", topic, "-o", "-1", "-e", "-q") == "c\n"


def test_a_topic_is_made_on_first_use(broker: BrokerProcess) -> None:
    topic = f"kcat-auto-{uuid.uuid4().hex}"
    kcat(broker, "-P", "-t", topic, text="first\n")
    assert kcat(broker, "-C", "-t", topic, "-o", "beginning", "-e", "-q") == "first\n"
