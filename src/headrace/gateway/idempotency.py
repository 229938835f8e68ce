"""Idempotency keys: a request that is repeated is answered with the offsets of its first run.

A key is claimed before anything is written under it: a record in a topic of our own binds it
to a producer id of its own, to the records' fingerprint and to the partitions they go to. The
records are then produced with that id, from sequence 0 in each partition. So whoever repeats
the request, through this process or another, before or after a crash, sends the very batches
that brokers already know, and brokers answer those with the offsets of the first.

    claim --committed--> read back up to it: the first claim of a key counts --> produce

Two gateways may claim a key at once; both read the log, and the log has an order. Claims end
after `key_lifetime_ms`, which the log's own times decide, so all readers agree on that too.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from headrace.client.aio.client import AsyncClient
from headrace.client.core.failures import error_for
from headrace.client.core.identity import new_identity
from headrace.client.core.models import EARLIEST, NewTopic
from headrace.core.errors import ApiError, ErrorCode, OffsetOutOfRange
from headrace.core.ids import TopicPartition
from headrace.gateway.batching import Packer
from headrace.gateway.reading import Reading
from headrace.gateway.sending import Send
from headrace.gateway.topics import Topics
from headrace.gateway.values import GatewayLimits, IdempotencyKeyReused, OutRecord
from headrace.protocol.records.decode import Record

TOPIC: Final = "__headrace_idempotency"
_READ_BYTES: Final = 1024 * 1024
_CLAIMS_PER_READ: Final = 10_000
_FINGERPRINT_BYTES: Final = 16
_CLAIM_MS: Final = 15_000
_LIFETIME_MS_MIN: Final = 60_000


class Claim(NamedTuple):
    """What a key stands for; `turn` is where partitions without keys began to take turns."""

    producer_id: int
    fingerprint: str
    partitions: int
    turn: int
    timestamp_ms: int


class Claims:
    """The keys of the whole cluster, as far as this gateway has read them."""

    def __init__(
        self, client: AsyncClient, topics: Topics, reading: Reading, limits: GatewayLimits
    ) -> None:
        self._client = client
        self._topics = topics
        self._reading = reading
        self._limits = limits
        self._known: OrderedDict[bytes, Claim] = OrderedDict()
        # Everything below this offset of the topic has been taken in.
        self._next_offset = 0
        self._one_reader = asyncio.Lock()
        self._is_there = False

    async def claim(
        self, topic: str, key: str, records: Sequence[OutRecord], partitions: int, turn: int
    ) -> Claim:
        """The claim that counts for this key: an earlier one, or ours as given."""
        if not 0 < len(key) <= self._limits.key_chars:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"an idempotency key has 1 to {self._limits.key_chars} characters",
            )
        name = f"{topic}/{key}".encode(errors="backslashreplace")
        fingerprint = _fingerprint(records)
        claim = self._fresh(name)
        if claim is None:
            identity = await self._client.run(new_identity(self._client.session))
            now_ms = self._client.clock.now_ms()
            ours = Claim(identity.producer_id, fingerprint, partitions, turn, now_ms)
            offset = await self._append(name, ours)
            await self._read_up_to(offset + 1)
            claim = self._known.get(name, ours)
        if claim.fingerprint != fingerprint:
            raise IdempotencyKeyReused(key)
        return claim

    def _fresh(self, name: bytes) -> Claim | None:
        claim = self._known.get(name)
        if claim is None:
            return None
        age_ms = self._client.clock.now_ms() - claim.timestamp_ms
        return claim if age_ms < self._limits.key_lifetime_ms else None

    async def _append(self, name: bytes, claim: Claim) -> int:
        """Write a claim, again and again if need be: of two copies the first counts."""
        await self._create_topic()
        value = json.dumps(claim._asdict(), separators=(",", ":")).encode()
        record = OutRecord(value, name, 0, (), claim.timestamp_ms)
        packer = Packer([record], now_ms=claim.timestamp_ms, bytes_max=self._limits.batch_bytes)
        send = Send(
            self._client,
            self._topics,
            TOPIC,
            packer,
            acks=-1,
            timeout_ms=_CLAIM_MS,
            may_repeat=True,
        )
        await send.run({0: packer.pack(0, [0])})
        error = send.done[0].error
        if error is not None:
            # Should somebody have deleted the topic, the next request makes another.
            self._is_there = False
            raise error
        return send.done[0].base_offset

    async def _create_topic(self) -> None:
        if self._is_there:
            return
        lifetime_ms = max(self._limits.key_lifetime_ms, _LIFETIME_MS_MIN)
        # Not compacted: compaction keeps the last record of a key, and the first one counts.
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(2 * lifetime_ms),
            "segment.ms": str(lifetime_ms),
        }
        try:
            await self._client.admin.create_topics([NewTopic(TOPIC, 1, configs=configs)])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self._is_there = True

    async def _read_up_to(self, end: int) -> None:
        async with self._one_reader:
            while self._next_offset < end:
                try:
                    found = await self._reading.read(
                        TOPIC,
                        0,
                        offset=self._next_offset,
                        max_bytes=_READ_BYTES,
                        max_records=_CLAIMS_PER_READ,
                        wait_ms=0,
                    )
                except OffsetOutOfRange:
                    # Old claims have expired, or the topic was deleted and made anew.
                    self._next_offset = await self._reading.offset_of(
                        TopicPartition(TOPIC, 0), EARLIEST
                    )
                    continue
                if found.next_offset <= self._next_offset:
                    raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "claims are missing", TOPIC)
                for record in found.records:
                    self._take_in(record)
                self._next_offset = found.next_offset

    def _take_in(self, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        try:
            claim = Claim(**json.loads(record.value))
        except (ValueError, TypeError):
            return  # not ours
        earlier = self._known.get(record.key)
        if earlier is not None:
            if claim.timestamp_ms - earlier.timestamp_ms < self._limits.key_lifetime_ms:
                return
            del self._known[record.key]
        self._known[record.key] = claim
        if len(self._known) > self._limits.keys_max:
            self._known.popitem(last=False)


def _fingerprint(records: Sequence[OutRecord]) -> str:
    """The same for the same records; a time that was not given does not count."""
    digest = blake2b(digest_size=_FINGERPRINT_BYTES)
    for value, key, partition, headers, timestamp_ms in records:
        digest.update(repr((partition, timestamp_ms, len(headers))).encode())
        _add(digest, value)
        _add(digest, key)
        for name, data in headers:
            _add(digest, name.encode(errors="backslashreplace"))
            _add(digest, data)
    return digest.hexdigest()


def _add(digest: "blake2b", data: bytes | None) -> None:
    if data is None:
        digest.update(b"-")
    else:
        digest.update(b"%d:" % len(data))
        digest.update(data)
