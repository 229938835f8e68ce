"""ApiVersions, Metadata, DescribeCluster, DescribeLogDirs, InitProducerId, DescribeProducers."""

from __future__ import annotations

import struct
from uuid import UUID

from headrace.protocol.api_keys import ApiKey
from headrace.protocol.frames import encode_request
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from headrace.protocol.messages.describe_cluster import DescribeClusterRequest
from headrace.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headrace.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.differential.masks import plain
from tests.differential.peer import CLOSED, Peer
from tests.differential.scripts import fill, script, versions
from tests.support.batches import Batch, values


@script
def api_versions(peer: Peer) -> None:
    for version in versions(ApiKey.API_VERSIONS):
        for label, name, release in (
            ("a client", "differential", "1.0"),
            ("a client with dots", "a.b-c", "4.3.0-rc1"),
            ("one letter", "x", "1"),
            ("an empty name", "", "1.0"),
            ("a space in the name", "my client", "1.0"),
            ("a bad release", "client", "-1.0-"),
        ):
            request = ApiVersionsRequest(client_software_name=name, client_software_version=release)
            peer.ask(request, version, label)


@script
def versions_nobody_serves(peer: Peer) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    frame = bytearray(encode_request(request, 4, 1, "x"))
    for version in (5, 99, 32767):
        struct.pack_into(">h", frame, 6, version)
        answer = peer.ask_frame(bytes(frame))
        if answer is None:
            peer.note("a version to come", "ApiVersions", version, CLOSED, good=False)
            continue
        # Refused versions are answered in the oldest form, so that any client can read it.
        found = ApiVersionsResponse.decode(answer, 0, 4)
        peer.note("a version to come", "ApiVersions", version, plain(found, 0, peer.names), False)
    for label, api_key, version in (
        ("Metadata v99", 3, 99),
        ("Produce v2", 0, 2),
        ("Produce v99", 0, 99),
        ("Fetch v3", 1, 3),
        ("no such API", 999, 0),
        ("a negative version", 3, -1),
    ):
        head = struct.pack(">hhihxx", api_key, version, 7, -1)
        answer = peer.ask_frame(struct.pack(">i", len(head)) + head)
        said = CLOSED if answer is None else "an answer"
        peer.note(label, "Unsupported", 0, said, good=False)


@script
def frames_that_make_no_sense(peer: Peer) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="x")])
    whole = encode_request(request, 9, 5, "differential")
    for label, frame in (
        ("a negative length", struct.pack(">i", -1)),
        ("a length of zero", struct.pack(">i", 0)),
        ("a length beyond the limit", struct.pack(">i", 200_000_000)),
        ("half a header", struct.pack(">ihh", 4, 3, 9)),
        ("a body cut short", struct.pack(">i", len(whole) - 8) + whole[4:-4]),
        ("an array longer than the body", _framed(3, 8, struct.pack(">i", 1_000_000))),
        ("a string longer than the body", _framed(3, 8, struct.pack(">ih", 1, 30_000) + b"x")),
        ("a negative array length", _framed(3, 8, struct.pack(">ibbb", -5, 0, 0, 0))),
        ("a client id that is no text", _framed(18, 0, b"", client_id=b"\xff\xfe")),
        ("bytes left over", _framed(18, 0, b"left over")),
    ):
        answer = peer.ask_frame(frame)
        said = CLOSED if answer is None else "an answer"
        peer.note(label, "Frames", 0, said, good=False)
        peer.disconnect()


def _framed(api_key: int, version: int, body: bytes, client_id: bytes = b"x") -> bytes:
    head = struct.pack(">hhih", api_key, version, 5, len(client_id)) + client_id
    return struct.pack(">i", len(head) + len(body)) + head + body


@script
def metadata_in_every_version(peer: Peer) -> None:
    topic_id = peer.create("known", 2)
    peer.create("known-too")

    def ask(version: int, label: str, names: list[str] | None, auto: bool = False) -> None:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=auto)
        peer.ask(request, version, label)

    for version in versions(ApiKey.METADATA):
        ask(version, "one topic", ["known"])
        ask(version, "two topics", ["known", "known-too"])
        ask(version, "one twice", ["known", "known"])
        if version >= 1:
            ask(version, "no topics", [])
        if version >= 4:
            ask(version, "unknown topic", ["no-such-topic"])
            ask(version, "known and unknown", ["known", "no-such-topic"])
        ask(version, "a bad name", ["a topic"])
        ask(version, "an empty name", [""])
        ask(version, "a name too long", ["x" * 250])
        if version >= 8:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name="known")],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=True,
                include_cluster_authorized_operations=version <= 10,
            )
            peer.ask(request, version, "authorized operations")
        if version >= 10:
            for label, asked in (("by id", topic_id), ("by an unknown id", UUID(int=777))):
                by_id = MetadataRequest(
                    topics=[MetadataRequestTopic(topic_id=asked, name=None)],
                    allow_auto_topic_creation=False,
                )
                peer.ask(by_id, version, label)
        new = f"made-by-metadata-{version}"
        ask(version, "made on first sight", [new], auto=True)
        peer.topic_id(new)
        ask(version, "there on second", [new], auto=True)


@script
def describe_cluster_in_every_version(peer: Peer) -> None:
    for version in versions(ApiKey.DESCRIBE_CLUSTER):
        for label, operations, endpoint, fenced in (
            ("plain", False, 1, False),
            ("with operations", True, 1, False),
            ("with fenced brokers", False, 1, True),
            ("controllers", False, 2, False),
            ("no such endpoint", False, 3, False),
        ):
            if version == 0 and endpoint != 1:
                continue
            if version < 2 and fenced:
                peer.ask(
                    DescribeClusterRequest(include_cluster_authorized_operations=False),
                    version,
                    "plain again",
                )
                continue
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=operations,
                endpoint_type=endpoint,
                include_fenced_brokers=fenced,
            )
            peer.ask(request, version, label)


@script
def describe_log_dirs_in_every_version(peer: Peer) -> None:
    topic_id = peer.create("weighed", 2)
    fill(peer, "weighed", topic_id, 0, *(Batch(values(5)).encode() for _ in range(3)))
    for version in versions(ApiKey.DESCRIBE_LOG_DIRS):
        for label, name, partitions in (
            ("both partitions", "weighed", [0, 1]),
            ("one partition", "weighed", [0]),
            ("no partition", "weighed", []),
            ("unknown partition", "weighed", [7]),
            ("unknown topic", "no-such-topic", [0]),
        ):
            topic = DescribableLogDirTopic(topic=name, partitions=partitions)
            peer.ask(DescribeLogDirsRequest(topics=[topic]), version, label)
        peer.ask(DescribeLogDirsRequest(topics=[]), version, "no topics")


@script
def init_producer_id_in_every_version(peer: Peer) -> None:
    peer.producer_id()
    for version in versions(ApiKey.INIT_PRODUCER_ID):
        for label in ("one", "another", "a third"):
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            peer.ask(request, version, label)
        if version >= 3:
            known = peer.producer_id()
            for label, producer, epoch in (
                ("known id, old epoch", known, 0),
                ("id without epoch", known, -1),
                ("epoch without id", -1, 3),
            ):
                request = InitProducerIdRequest(
                    transactional_id=None,
                    transaction_timeout_ms=60_000,
                    producer_id=producer,
                    producer_epoch=epoch,
                )
                peer.ask(request, version, label)
        empty = InitProducerIdRequest(transactional_id="", transaction_timeout_ms=60_000)
        peer.ask(empty, version, "empty transactional id")


@script
def describe_producers(peer: Peer) -> None:
    topic_id = peer.create("producers", 2)
    producer, other = peer.producer_id(), peer.producer_id()
    first = Batch(values(2), producer_id=producer, producer_epoch=0, base_sequence=0)
    fill(peer, "producers", topic_id, 0, first.encode(), first.but(base_sequence=2).encode())
    fill(peer, "producers", topic_id, 0, first.but(producer_id=other, producer_epoch=3).encode())
    for label, name, partitions in (
        ("two producers", "producers", [0]),
        ("none", "producers", [1]),
        ("both partitions", "producers", [0, 1]),
        ("no partitions", "producers", []),
        ("unknown partition", "producers", [9]),
        ("unknown topic", "no-such-topic", [0]),
        ("a bad name", "a topic", [0]),
    ):
        one = TopicRequest(name=name, partition_indexes=partitions)
        peer.ask(DescribeProducersRequest(topics=[one]), 0, label)
