"""Traps that real clients fall into before the first record: versions, order, metadata, nulls.

Each test is named by the number of its trap in the project's list of wire facts; trap 1 is also in
`test_kcat.py`, trap 7 in `test_kafka_python.py`.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.frames import decode_response, encode_request
from headrace.protocol.message import Message
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headrace.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headrace.protocol.messages.fetch import FetchResponse
from headrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headrace.protocol.messages.produce import ProduceResponse
from tests.differential.peer import Peer
from tests.differential.scripts import fetch_request, produce_request
from tests.integration.conftest import BrokerMaker
from tests.support.batches import Batch
from tests.support.brokers import HOST, BrokerProcess

_UNSUPPORTED_VERSION, _INVALID_REQUEST = 35, 42


@pytest.fixture
def peer(broker: BrokerProcess) -> Iterator[Peer]:
    opened = Peer(broker)
    yield opened
    opened.disconnect()


def fresh(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:10]}"


def api_versions(peer: Peer, version: int, name: str = "trap") -> ApiVersionsResponse:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    return peer.quietly(request, version, ApiVersionsResponse)


def test_trap_01_old_librdkafka_finds_the_exact_versions_it_asks_for(peer: Peer) -> None:
    ranges = {
        each.api_key: range(each.min_version, each.max_version + 1)
        for each in api_versions(peer, 0).api_keys
    }
    for key, wanted in (
        (ApiKey.PRODUCE, (0, 3, 7)),
        (ApiKey.FETCH, (4, 10)),
        (ApiKey.LIST_OFFSETS, (1,)),
        (ApiKey.INIT_PRODUCER_ID, (0,)),
    ):
        assert all(version in ranges[key] for version in wanted)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_trap_02_the_answer_to_api_versions_has_the_oldest_header(peer: Peer, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="trap", client_software_version="1")
    answer = peer.ask_frame(encode_request(request, version, 77, "trap"))
    assert answer is not None
    # Right behind the correlation id comes the error code: no tagged fields in between.
    assert struct.unpack_from(">ih", answer) == (77, 0)
    assert ApiVersionsResponse.decode(answer, version, 4).error_code == 0


def test_trap_02_an_unknown_version_is_answered_in_the_oldest_form(peer: Peer) -> None:
    request = ApiVersionsRequest(client_software_name="trap", client_software_version="1")
    frame = bytearray(encode_request(request, 4, 1, "trap"))
    struct.pack_into(">h", frame, 6, 99)
    answer = peer.ask_frame(bytes(frame))
    assert answer is not None
    found = ApiVersionsResponse.decode(answer, 0, 4)
    assert found.error_code == _UNSUPPORTED_VERSION
    own = next(each for each in found.api_keys if each.api_key == ApiKey.API_VERSIONS)
    assert (own.min_version, own.max_version) == (0, 4)
    # The client retries on the same connection.
    assert api_versions(peer, 0).error_code == 0


def test_trap_03_api_versions_may_be_asked_more_than_once(peer: Peer) -> None:
    assert [api_versions(peer, version).error_code for version in (0, 4, 3, 0)] == [0] * 4


def test_trap_04_features_from_version_zero_are_left_out_of_v3(peer: Peer) -> None:
    assert all(each.min_version > 0 for each in api_versions(peer, 3).supported_features)


@pytest.mark.parametrize("name", ["", "my client", "-x", "x-", "ä"])
def test_trap_05_a_bad_software_name_is_an_invalid_request(peer: Peer, name: str) -> None:
    assert api_versions(peer, 3, name).error_code == _INVALID_REQUEST
    assert api_versions(peer, 3, "a.b-c1").error_code == 0


def test_trap_06_finalized_features_come_with_an_epoch(peer: Peer) -> None:
    found = api_versions(peer, 4)
    assert found.finalized_features_epoch >= 0
    finalized = {each.name: each.max_version_level for each in found.finalized_features}
    supported = {each.name: each.max_version for each in found.supported_features}
    assert finalized["metadata.version"] > 0
    assert finalized.keys() <= supported.keys()


def test_trap_08_telemetry_is_not_advertised(request: pytest.FixtureRequest, peer: Peer) -> None:
    if request.config.getoption("--against") == "kafka":
        pytest.skip("Kafka lists it only with a telemetry plugin")
    assert not {71, 72} & {each.api_key for each in api_versions(peer, 0).api_keys}


def test_trap_09_answers_come_in_order_and_a_waiting_fetch_stops_nobody(
    request: pytest.FixtureRequest, broker: BrokerProcess, peer: Peer
) -> None:
    """Pipelined: a long poll, a produce that ends it, and a question behind both."""
    if request.config.getoption("--against") == "kafka":
        pytest.skip("Kafka takes up one request of a connection at a time")
    topic = fresh("order")
    topic_id = peer.create(topic)
    waiting = fetch_request(12, topic, topic_id, {0: 0}, max_wait_ms=20_000, min_bytes=1)
    produce = produce_request(9, topic, topic_id, {0: Batch().encode()})
    frames = [
        encode_request(waiting, 12, 1, "trap"),
        encode_request(produce, 9, 2, "trap"),
        encode_request(ApiVersionsRequest(), 0, 3, "trap"),
    ]
    answers = _pipelined(broker, frames)
    assert [struct.unpack_from(">i", answer)[0] for answer in answers] == [1, 2, 3]
    fetched = decode_response(FetchResponse, answers[0], 12)[1]
    assert fetched.responses[0].partitions[0].records
    produced = decode_response(ProduceResponse, answers[1], 9)[1]
    assert produced.responses[0].partition_responses[0].error_code == 0


def _pipelined(broker: BrokerProcess, frames: list[bytes]) -> list[bytes]:
    import socket

    with socket.create_connection((HOST, broker.port), timeout=15) as connection:
        connection.sendall(b"".join(frames))
        reader = connection.makefile("rb")
        return [reader.read(struct.unpack(">i", reader.read(4))[0]) for _ in frames]


def test_trap_10_acks_zero_gets_no_answer(broker: BrokerProcess, peer: Peer) -> None:
    topic = fresh("silent")
    topic_id = peer.create(topic)
    silent = produce_request(9, topic, topic_id, {0: Batch().encode()}, acks=0)
    frames = [
        encode_request(silent, 9, 1, "trap"),
        encode_request(ApiVersionsRequest(), 0, 2, "trap"),
    ]
    import socket

    with socket.create_connection((HOST, broker.port), timeout=15) as connection:
        connection.sendall(b"".join(frames))
        first = connection.makefile("rb").read(8)
    assert struct.unpack(">ii", first)[1] == 2


@pytest.mark.parametrize(("key", "version"), [(3, 99), (0, 2), (1, 3), (999, 0)])
def test_trap_10_an_unsupported_version_closes_the_connection(
    peer: Peer, key: int, version: int
) -> None:
    head = struct.pack(">hhihxx", key, version, 7, -1)
    assert peer.ask_frame(struct.pack(">i", len(head)) + head) is None
    assert api_versions(peer, 0).error_code == 0


def metadata(peer: Peer, version: int, names: list[str] | None, auto: bool = False) -> Any:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto)
    return peer.quietly(request, version, MetadataResponse)


def test_trap_11_metadata_names_the_cluster_the_controller_and_a_reachable_address(
    broker: BrokerProcess, peer: Peer
) -> None:
    found = metadata(peer, 12, [])
    assert found.cluster_id
    assert found.controller_id in {each.node_id for each in found.brokers}
    assert [(each.host, each.port) for each in found.brokers] == [(HOST, broker.port)]


def test_trap_11_the_very_first_answer_names_the_broker(make_broker: BrokerMaker) -> None:
    """librdkafka does not ask again for minutes when it is told of no broker at all."""
    for _ in range(3):
        broker = make_broker({})
        broker.launch()
        early = Peer(broker)
        answer = None
        while answer is None:
            try:
                frame = encode_request(MetadataRequest(topics=[]), 12, 1, "trap")
                answer = early.ask_frame(frame)
            except OSError:
                assert broker.running
        early.disconnect()
        found = decode_response(MetadataResponse, answer, 12)[1]
        assert [each.port for each in found.brokers] == [broker.port]


def test_trap_11_empty_and_null_mean_different_things_by_version(peer: Peer) -> None:
    topic = fresh("listed")
    peer.create(topic)

    def listed(version: int, names: list[str] | None) -> set[str]:
        return {each.name for each in metadata(peer, version, names).topics}

    assert topic in listed(0, [])
    assert topic in listed(1, None)
    assert listed(1, []) == set()
    assert topic in listed(12, None)
    assert listed(12, []) == set()


@pytest.mark.parametrize("version", [0, 1, 4, 9, 12, 13])
def test_trap_11_a_topic_made_by_metadata_is_there_on_the_next_try(
    peer: Peer, version: int
) -> None:
    topic = fresh("auto")
    leader_not_available, unknown = 5, 3
    first = metadata(peer, version, [topic], auto=True).topics[0]
    assert first.error_code in (leader_not_available, unknown)
    peer.topic_id(topic)
    assert metadata(peer, version, [topic], auto=True).topics[0].error_code == 0


def test_trap_11_nothing_is_made_where_the_client_says_so_or_the_name_is_bad(peer: Peer) -> None:
    topic, unknown, invalid = fresh("never"), 3, 17
    for _ in range(2):
        assert metadata(peer, 4, [topic]).topics[0].error_code == unknown
    for name in ("a b", "", "x" * 250, ".", ".."):
        assert metadata(peer, 4, [name], auto=True).topics[0].error_code == invalid


def test_trap_11_a_topic_is_found_by_its_id(peer: Peer) -> None:
    topic = fresh("by-id")
    topic_id = peer.create(topic)

    def by_id(wanted: uuid.UUID) -> MetadataResponseTopic:
        asked = MetadataRequestTopic(topic_id=wanted, name=None)
        request = MetadataRequest(topics=[asked], allow_auto_topic_creation=False)
        return peer.quietly(request, 12, MetadataResponse).topics[0]

    assert by_id(topic_id).name == topic
    unknown_topic_id = 100
    assert by_id(uuid.uuid4()).error_code == unknown_topic_id


@pytest.mark.parametrize("version", [5, 6, 7])
def test_trap_12_a_created_topic_comes_with_a_list_of_configs(peer: Peer, version: int) -> None:
    new = CreatableTopic(
        name=fresh("created"), num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    request = CreateTopicsRequest(topics=[new], timeout_ms=10_000)
    found = peer.quietly(request, version, CreateTopicsResponse).topics[0]
    assert found.error_code == 0
    assert found.topic_config_error_code == 0
    assert found.configs is not None
    assert any(each.name == "retention.ms" for each in found.configs)


def test_trap_13_eligible_leader_replicas_are_empty_and_not_null(peer: Peer) -> None:
    topic = fresh("elr")
    peer.create(topic, 2)
    request: Message = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])
    found = peer.quietly(request, 0, DescribeTopicPartitionsResponse).topics[0]
    assert len(found.partitions) == 2
    for partition in found.partitions:
        assert partition.eligible_leader_replicas == []
        assert partition.last_known_elr == []
