"""How long one message takes in the codec, in microseconds; best of several rounds.

Run as `python -m bench.micro_codec`.
"""

import subprocess
import sys
import timeit
from collections.abc import Callable, Iterator
from functools import partial
from uuid import UUID

from headrace.protocol.frames import decode_request_header, encode_request, encode_response_parts
from headrace.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

TOPIC_ID = UUID("3f0c6c7c-8f40-4e56-9ad4-6c6a3a1c1f11")


def produce_request(version: int, partitions: int) -> ProduceRequest:
    """A producer's request with one small batch per partition."""
    data = [PartitionProduceData(index=i, records=b"r" * 200) for i in range(partitions)]
    topic = TopicProduceData(partition_data=data)
    if version < 13:
        topic.name = "orders"
    else:
        topic.topic_id = TOPIC_ID
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response(partitions: int) -> ProduceResponse:
    """The answer to it."""
    rows = [PartitionProduceResponse(index=i, base_offset=12_345) for i in range(partitions)]
    return ProduceResponse(
        responses=[TopicProduceResponse(name="orders", topic_id=TOPIC_ID, partition_responses=rows)]
    )


def fetch_request(partitions: int) -> FetchRequest:
    """A consumer's request without a session."""
    rows = [
        FetchPartition(partition=i, fetch_offset=99, partition_max_bytes=1 << 20)
        for i in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[FetchTopic(topic="orders", topic_id=TOPIC_ID, partitions=rows)],
    )


def fetch_response(partitions: int, records_bytes: int) -> FetchResponse:
    """The answer to it, records included."""
    records = b"r" * records_bytes
    rows = [
        PartitionData(partition_index=i, high_watermark=100, records=records)
        for i in range(partitions)
    ]
    return FetchResponse(
        responses=[FetchableTopicResponse(topic="orders", topic_id=TOPIC_ID, partitions=rows)]
    )


def metadata_response(topics: int, partitions: int) -> MetadataResponse:
    """A cluster of one broker."""
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=0, host="127.0.0.1", port=9092)],
        cluster_id="cluster",
        controller_id=0,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{t}",
                topic_id=TOPIC_ID,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=p,
                        leader_id=0,
                        leader_epoch=3,
                        replica_nodes=[0],
                        isr_nodes=[0],
                    )
                    for p in range(partitions)
                ],
            )
            for t in range(topics)
        ],
    )


def decode_frame(frame: bytearray, version: int) -> ProduceRequest:
    """What a broker does with a produce request before it looks at it."""
    return ProduceRequest.decode(frame, version, decode_request_header(frame).body_position)


def answer_produce(version: int) -> object:
    """What a broker does to answer it."""
    return encode_response_parts(produce_response(1), version, 7)


def cases() -> Iterator[tuple[str, Callable[[], object]]]:
    """What is measured, by name."""
    for version in (7, 9, 13):
        frame = bytearray(encode_request(produce_request(version, 1), version, 7, "client-1")[4:])
        body = frame[decode_request_header(frame).body_position :]
        yield f"Produce v{version} header + decode", partial(decode_frame, frame, version)
        yield f"Produce v{version} decode", partial(ProduceRequest.decode, body, version)
        yield f"Produce v{version} response build + frame", partial(answer_produce, version)
        produced = produce_response(1)
        framed = partial(encode_response_parts, produced, version, 7)
        yield f"Produce v{version} response frame", framed
    for version in (11, 12, 17):
        body = bytearray(fetch_request(1).encode(version))
        yield f"Fetch v{version} decode", partial(FetchRequest.decode, body, version)
        for name, fetched in (
            ("1 MB", fetch_response(1, 1 << 20)),
            ("empty", FetchResponse(responses=[])),
        ):
            framed = partial(encode_response_parts, fetched, version, 7)
            yield f"Fetch v{version} response frame in parts, {name}", framed
            raw = fetched.encode(version)
            read = partial(FetchResponse.decode, raw, version)
            yield f"Fetch v{version} response decode, {name}", read
    for topics, partitions in ((1, 1), (10, 10)):
        described = metadata_response(topics, partitions)
        size = f"{topics} x {partitions}"
        yield f"Metadata v12 response encode, {size}", partial(described.encode, 12)
        raw = described.encode(12)
        yield f"Metadata v12 response decode, {size}", partial(MetadataResponse.decode, raw, 12)


def import_ms() -> float:
    """Time to import the three hottest modules in a fresh interpreter, codec included."""
    program = (
        "import time, uuid, struct, enum, typing, collections.abc, importlib, re\n"
        "begin = time.perf_counter()\n"
        "import headrace.protocol.messages.produce, headrace.protocol.messages.fetch\n"
        "import headrace.protocol.messages.metadata, headrace.protocol.frames\n"
        "print((time.perf_counter() - begin) * 1000)"
    )
    rounds = [
        float(
            subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
        )
        for _ in range(5)
    ]
    return min(rounds)


def main() -> None:
    """Print one line per case."""
    print(f"{import_ms():8.2f} ms  import of produce, fetch, metadata and frames")
    for name, call in cases():
        call()
        loops = 2000
        best = min(timeit.repeat(call, number=loops, repeat=7)) / loops
        print(f"{best * 1e6:8.2f} µs  {name}")


if __name__ == "__main__":
    main()
