"""Produce: every version, every way a batch can be wrong, idempotent sequences."""

from __future__ import annotations

from headrace.protocol.api_keys import ApiKey
from tests.differential.peer import Peer
from tests.differential.scripts import (
    NULL_ID,
    fetch_request,
    fill,
    produce_request,
    script,
    versions,
    wait_for_records,
)
from tests.support.batches import CONTROL, GZIP, LOG_APPEND_TIME, TRANSACTIONAL, Batch, values

_UNKNOWN_CODEC = 5


@script
def produce_in_every_version(peer: Peer) -> None:
    topic_id = peer.create("produce-good", 2)
    one, three = Batch().encode(), Batch(values(3), timestamp_step_ms=5).encode()
    for version in versions(ApiKey.PRODUCE):
        for label, partitions, acks in (
            ("one record, acks 1", {0: one}, 1),
            ("three records, acks all", {0: three}, -1),
            ("two partitions", {0: one, 1: three}, -1),
        ):
            request = produce_request(version, "produce-good", topic_id, partitions, acks)
            peer.ask(request, version, label)
    for partition in (0, 1):
        peer.ask(
            fetch_request(12, "produce-good", topic_id, {partition: 0}), 12, "all of it read back"
        )


@script
def produce_without_acknowledgement(peer: Peer) -> None:
    topic_id = peer.create("produce-silent")
    for number, version in enumerate(versions(ApiKey.PRODUCE), start=1):
        request = produce_request(version, "produce-silent", topic_id, {0: Batch().encode()}, 0)
        peer.tell(request, version, "acks 0")
        wait_for_records(peer, "produce-silent", topic_id, 0, number)
    peer.ask(fetch_request(12, "produce-silent", topic_id, {0: 0}), 12, "read back")


@script
def produce_to_nowhere(peer: Peer) -> None:
    topic_id = peer.create("produce-where")
    twice_id = peer.create("produce-twice")
    batch = Batch().encode()
    for version in versions(ApiKey.PRODUCE):
        known = produce_request(version, "produce-where", topic_id, {7: batch})
        peer.ask(known, version, "unknown partition")
        negative = produce_request(version, "produce-where", topic_id, {-1: batch})
        peer.ask(negative, version, "negative partition")
        both = produce_request(version, "produce-where", topic_id, {0: batch, 9: batch})
        peer.ask(both, version, "one partition known, one not")
        if version < 13:
            missing = produce_request(version, "no-such-topic", NULL_ID, {0: batch})
            peer.ask(missing, version, "unknown topic")
        else:
            peer.ask(produce_request(version, "", NULL_ID, {0: batch}), version, "null topic id")
            stranger = type(NULL_ID)(int=12345)
            peer.ask(produce_request(version, "", stranger, {0: batch}), version, "unknown id")
        doubled = produce_request(version, "produce-twice", twice_id, {0: batch})
        doubled.topic_data = doubled.topic_data * 2
        peer.ask(doubled, version, "a topic twice")
        odd_acks = produce_request(version, "produce-where", topic_id, {0: batch}, acks=5)
        peer.ask(odd_acks, version, "acks 5")


@script
def produce_bad_batches(peer: Peer) -> None:
    good = Batch(values(2))
    tail = good.encode()
    # Null records are left out: Kafka never answers them.
    cases = {
        "wrong checksum": good.but(crc=1).encode(),
        "magic 3": good.but(magic=3).encode(),
        "magic 1": good.but(magic=1).encode(),
        "magic 0": good.but(magic=0).encode(),
        "control bit": good.but(attributes=CONTROL).encode(),
        "transactional without an id": good.but(attributes=TRANSACTIONAL).encode(),
        "unknown codec": good.but(attributes=_UNKNOWN_CODEC).encode(),
        "last offset delta too small": good.but(last_offset_delta=0).encode(),
        "last offset delta too large": good.but(last_offset_delta=5).encode(),
        "negative last offset delta": good.but(last_offset_delta=-1).encode(),
        "record count too large": good.but(record_count=3).encode(),
        "record count too small": good.but(record_count=1).encode(),
        "record count zero": good.but(record_count=0, records=b"", last_offset_delta=0).encode(),
        "base offset not zero": good.but(base_offset=44).encode(),
        "leader epoch set": good.but(leader_epoch=99).encode(),
        "append time claimed": good.but(attributes=LOG_APPEND_TIME).encode(),
        "length below a header": good.but(length=10).encode(),
        "length beyond the end": good.but(length=len(tail) + 100).encode(),
        "two batches": tail + tail,
        "a cut batch": tail[:-3],
        "half a header": tail[:20],
        "nothing": b"",
        "sequence without producer": good.but(base_sequence=0).encode(),
        "producer without sequence": good.but(producer_id=1, producer_epoch=0).encode(),
        "garbage behind gzip": good.but(attributes=GZIP, records=b"not gzip").encode(),
        "timestamps missing": good.but(base_timestamp_ms=-1, max_timestamp_ms=-1).encode(),
    }
    # A partition for each case: what one broker lets in must not shift the offsets of the rest.
    topic_id = peer.create("produce-bad", len(cases))
    for version in (3, 8, 12, 13):
        for partition, (label, records) in enumerate(cases.items()):
            request = produce_request(version, "produce-bad", topic_id, {partition: records})
            peer.ask(request, version, label)
    for partition, label in enumerate(cases):
        request_back = fetch_request(12, "produce-bad", topic_id, {partition: 0})
        peer.ask(request_back, 12, f"{label}: what was let in")


@script
def produce_within_the_limits_of_a_topic(peer: Peer) -> None:
    small = peer.create("produce-small", max_message_bytes="200")
    compacted = peer.create("produce-compacted", cleanup_policy="compact")
    early = peer.create("produce-early", message_timestamp_before_max_ms="1000")
    late = peer.create("produce-late", message_timestamp_after_max_ms="1000")
    stamped = peer.create("produce-stamped", message_timestamp_type="LogAppendTime")
    in_sync = peer.create("produce-in-sync", min_insync_replicas="2")
    loosely = peer.create("produce-loosely", min_insync_replicas="2")
    keyless = [(b"a", b"1"), (None, b"2"), (b"c", None), (None, None)]
    future = Batch(values(2), base_timestamp_ms=4_000_000_000_000)
    for version in versions(ApiKey.PRODUCE):
        for label, topic, topic_id, batch, acks in (
            ("too large", "produce-small", small, Batch([(None, b"x" * 300)]), -1),
            ("just fits", "produce-small", small, Batch([(None, b"x" * 100)]), -1),
            ("records without key", "produce-compacted", compacted, Batch(keyless), -1),
            ("all with key", "produce-compacted", compacted, Batch(values(3)), -1),
            ("too old", "produce-early", early, Batch(values(2)), -1),
            ("too new", "produce-late", late, future, -1),
            ("stamped by the broker", "produce-stamped", stamped, Batch(values(2)), -1),
            ("fewer replicas than must be in sync", "produce-in-sync", in_sync, Batch(), -1),
            ("enough for acks 1", "produce-loosely", loosely, Batch(), 1),
        ):
            request = produce_request(version, topic, topic_id, {0: batch.encode()}, acks)
            peer.ask(request, version, label)
    peer.ask(fetch_request(12, "produce-stamped", stamped, {0: 0}), 12, "stamped, read back")


@script
def produce_with_codecs_of_their_version(peer: Peer) -> None:
    topic_id = peer.create("produce-zstd")
    # An empty zstd frame: what matters is that the codec is refused before version 7.
    for version in versions(ApiKey.PRODUCE, until=6):
        zstd = Batch(values(1), attributes=4, records=b"\x28\xb5\x2f\xfd\x00")
        request = produce_request(version, "produce-zstd", topic_id, {0: zstd.encode()})
        peer.ask(request, version, "zstd before version 7")


@script
def produce_in_a_sequence(peer: Peer) -> None:
    topic_id = peer.create("produce-sequence")
    producer = peer.producer_id()
    first = Batch(values(2), producer_id=producer, producer_epoch=0, base_sequence=0)

    def send(batch: Batch, label: str, version: int = 12) -> None:
        request = produce_request(version, "produce-sequence", topic_id, {0: batch.encode()})
        peer.ask(request, version, label)

    send(first, "first")
    send(first, "first again")
    send(first.but(base_sequence=2), "second")
    send(first.but(base_sequence=9), "a gap")
    send(first.but(base_sequence=4), "third")
    send(first.but(base_sequence=0), "first, still remembered")
    for sequence in (6, 8, 10, 12):
        send(first.but(base_sequence=sequence), f"sequence {sequence}", 13)
    send(first, "first, forgotten after five")
    send(first.but(base_sequence=12), "newest again")
    send(first.but(base_sequence=12, values=values(1)), "newest again, shorter")
    send(first.but(producer_epoch=1, base_sequence=5), "new epoch not from zero")
    send(first.but(producer_epoch=1, base_sequence=0), "new epoch")
    send(first.but(producer_epoch=0, base_sequence=14), "old epoch")
    send(first.but(producer_epoch=-1, base_sequence=0), "negative epoch")
    stranger = first.but(producer_id=producer + 900_000, base_sequence=7)
    send(stranger, "a producer never seen, not from zero")
    peer.ask(fetch_request(12, "produce-sequence", topic_id, {0: 0}), 12, "what is there")


@script
def produce_across_the_end_of_sequences(peer: Peer) -> None:
    topic_id = peer.create("produce-wrap")
    producer = peer.producer_id()
    near_end = Batch(values(3), producer_id=producer, producer_epoch=0, base_sequence=2**31 - 2)
    for label, batch in (
        ("starts near the end", near_end),
        ("goes on behind it", near_end.but(base_sequence=1)),
        ("behind it again", near_end.but(base_sequence=1)),
    ):
        request = produce_request(11, "produce-wrap", topic_id, {0: batch.encode()})
        peer.ask(request, 11, label)


@script
def produce_with_a_transactional_id(peer: Peer) -> None:
    topic_id = peer.create("produce-transactional")
    producer = peer.producer_id()
    batch = Batch(
        producer_id=producer, producer_epoch=0, base_sequence=0, attributes=TRANSACTIONAL
    ).encode()
    fill(peer, "produce-transactional", topic_id, 0, Batch().encode())
    for version in (3, 9, 11):
        request = produce_request(
            version, "produce-transactional", topic_id, {0: batch}, transactional_id="not-open"
        )
        peer.ask(request, version, "transactional id without a transaction")
