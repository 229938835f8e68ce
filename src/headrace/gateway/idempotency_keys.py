"""Idempotency keys: a request that is repeated is answered with the offsets of its first run.

A key is claimed before anything is written under it: a record in a topic of our own binds it
to a producer id of its own, to the records' fingerprint and to the partitions they go to. The
records are then produced with that id, from sequence 0 in each partition. So whoever repeats
the request, through this process or another, before or after a crash, sends the very batches
that brokers already know, and brokers answer those with the offsets of the first.

    claim --committed--> read back up to it: the first claim of a key counts --> produce

Two gateways may claim a key at once; both read the log, and the log has an order. Each reads to
the end before it claims, so a claim that comes second is at most moments younger than the first,
and who starts to read a little more than a lifetime ago finds the claims that count. Claims end
after `key_lifetime_ms`, which the log's own times decide, so all readers agree on that too. Until
then none is forgotten: where there are too many, new keys are refused.
"""

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from headrace.client.aio.client import AsyncClient
from headrace.client.core.errors import error_for
from headrace.client.core.models import (
    EARLIEST,
    NewTopic,
    at_time,
)
from headrace.client.core.producer_identity import request_producer_identity
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.errors import ApiError, ErrorCode, OffsetOutOfRange
from headrace.core.ids import TopicPartition
from headrace.gateway.batch_sender import BatchSender
from headrace.gateway.batches import BatchEncoder
from headrace.gateway.reader import GatewayReader
from headrace.gateway.topics import Topics
from headrace.gateway.values import (
    GatewayLimits,
    IdempotencyKeyReused,
    KeyLifetimeTooLong,
    OutRecord,
    TooManyKeys,
)
from headrace.protocol.records.decode import Record

logger = logging.getLogger(__name__)

TOPIC: Final = "__headrace_idempotency"
_EXPIRATION: Final = "producer.id.expiration.ms"
_LONG_MAX: Final = 2**63 - 1
# About as many claims as are taken in at a time.
_READ_BYTES: Final = 128 * 1024
_CLAIMS_PER_READ: Final = 500
_FINGERPRINT_BYTES: Final = 16
_NAME_BYTES: Final = 16
_CLAIM_MS: Final = 15_000
_LIFETIME_MS_MIN: Final = 60_000
# Two claims of a key that nobody had claimed are closer than this, however clocks differ.
_MARGIN_MS: Final = 300_000
# How often brokers are asked for how long they remember producers: that may change any time.
_CHECK_MS: Final = 10_000
# A claim in memory: a third of what the object would take.
_PACKED: Final = Struct(">q16siiqi")


class Claim(NamedTuple):
    """What a key stands for.

    `turn` is where records without keys began to take turns, `places` how many partitions the
    records go to, each of which has to remember the producer.
    """

    producer_id: int
    fingerprint: str
    partitions: int
    turn: int
    timestamp_ms: int
    places: int = 1

    def pack(self) -> bytes:
        producer_id, fingerprint, *others = self
        return _PACKED.pack(producer_id, bytes.fromhex(fingerprint), *others)

    @classmethod
    def unpack(cls, data: bytes) -> "Claim":
        producer_id, fingerprint, *others = _PACKED.unpack(data)
        return cls(producer_id, fingerprint.hex(), *others)


class IdempotencyKeys:
    """The keys of the whole cluster, as far as this gateway has read them."""

    def __init__(
        self, client: AsyncClient, topics: Topics, reader: GatewayReader, limits: GatewayLimits
    ) -> None:
        self._client = client
        self._topics = topics
        self._reader = reader
        self._limits = limits
        # By digest of the name, packed, oldest first.
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        self._partitions_in_use = 0
        # Places of claims that are on their way.
        self._pending: dict[bytes, int] = {}
        # Everything below this offset that may still count has been taken in; None: nothing yet.
        self._next_offset: int | None = None
        self._one_reader = asyncio.Lock()
        self._topic_exists = False
        # For how long brokers remember producers; None: they do not say.
        self._expiration_ms: int | None = None
        self._next_check_ms = 0.0

    async def claim(
        self,
        topic: str,
        key: str,
        records: Sequence[OutRecord],
        partitions: int,
        turn: int,
        places: int,
    ) -> Claim:
        """The claim that counts for this key: an earlier one, or ours as given."""
        if not 0 < len(key) <= self._limits.key_chars:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"an idempotency key has 1 to {self._limits.key_chars} characters",
            )
        await self._check_expiration()
        name = f"{topic}/{key}".encode(errors="backslashreplace")
        fingerprint = _fingerprint(records)
        claim = self._unexpired(name)
        if claim is None:
            await self._create_topic()
            await self._read_up_to(None)
            claim = self._unexpired(name)
        if claim is None:
            claim = await self._claim_new(name, fingerprint, partitions, turn, places)
        if claim.fingerprint != fingerprint:
            raise IdempotencyKeyReused(key)
        return claim

    async def _check_expiration(self) -> None:
        """A key is no better than the brokers' memory of what was written under it."""
        now_ms = self._client.clock.monotonic_ms()
        if now_ms >= self._next_check_ms:
            self._expiration_ms = await self._read_expiration()
            self._next_check_ms = now_ms + _CHECK_MS
        expiration_ms, lifetime_ms = self._expiration_ms, self._limits.key_lifetime_ms
        if expiration_ms is not None and expiration_ms <= lifetime_ms:
            raise KeyLifetimeTooLong(lifetime_ms, expiration_ms)

    async def _read_expiration(self) -> int | None:
        """Of that broker which forgets first."""
        admin = self._client.admin
        try:
            brokers = (await admin.describe_cluster()).brokers
            resources = [
                ConfigResource(ConfigResourceType.BROKER, str(each.node_id)) for each in brokers
            ]
            configs = await admin.describe_configs(resources, keys=[_EXPIRATION])
        except ApiError as error:
            logger.debug("brokers do not say for how long they remember: error=%s", error)
            return None
        values = [found[_EXPIRATION].value for found in configs.values() if _EXPIRATION in found]
        return min((int(value) for value in values if value is not None), default=None)

    async def _claim_new(
        self, name: bytes, fingerprint: str, partitions: int, turn: int, places: int
    ) -> Claim:
        self._drop_expired()
        if self._partitions_in_use + sum(self._pending.values()) + places > self._limits.keys_max:
            raise TooManyKeys(self._limits.keys_max)
        # So that many at once cannot pass the limit together.
        digest = _digest(name)
        self._pending[digest] = places
        try:
            identity = await self._client.requests.run(
                request_producer_identity(self._client.requests.session)
            )
            now_ms = self._client.clock.now_ms()
            ours = Claim(identity.producer_id, fingerprint, partitions, turn, now_ms, places)
            offset = await self._append(name, ours)
            await self._read_up_to(offset + 1)
        finally:
            self._pending.pop(digest, None)
        packed = self._known.get(digest)
        return ours if packed is None else Claim.unpack(packed)

    def _unexpired(self, name: bytes) -> Claim | None:
        packed = self._known.get(_digest(name))
        if packed is None:
            return None
        claim = Claim.unpack(packed)
        age_ms = self._client.clock.now_ms() - claim.timestamp_ms
        return claim if age_ms < self._limits.key_lifetime_ms else None

    def _remembered_ms(self) -> int:
        """How long claims are remembered: they lose their say a little earlier."""
        lifetime_ms = self._limits.key_lifetime_ms
        return lifetime_ms + min(lifetime_ms, _MARGIN_MS)

    def _drop_expired(self) -> None:
        oldest_ms = self._client.clock.now_ms() - self._remembered_ms()
        while self._known:
            claim = Claim.unpack(next(iter(self._known.values())))
            if claim.timestamp_ms > oldest_ms:
                return
            self._known.popitem(last=False)
            self._partitions_in_use -= claim.places

    async def _append(self, name: bytes, claim: Claim) -> int:
        """Write a claim, again and again if need be: of two copies the first counts."""
        value = json.dumps(claim._asdict(), separators=(",", ":")).encode()
        record = OutRecord(value, name, 0, (), claim.timestamp_ms)
        encoder = BatchEncoder(
            [record], now_ms=claim.timestamp_ms, bytes_max=self._limits.batch_bytes
        )
        sender = BatchSender(
            self._client,
            self._topics,
            TOPIC,
            encoder,
            acks=-1,
            timeout_ms=_CLAIM_MS,
            may_repeat=True,
        )
        await sender.run({0: encoder.encode(0, [0])})
        error = sender.done[0].error
        if error is not None:
            # Should somebody have deleted the topic, the next request makes another.
            self._topic_exists = False
            raise error
        return sender.done[0].base_offset

    async def _create_topic(self) -> None:
        if self._topic_exists:
            return
        lifetime_ms = max(self._limits.key_lifetime_ms, _LIFETIME_MS_MIN)
        # Not compacted: compaction keeps the last record of a key, and the first one counts.
        configs = {
            # Whatever else the brokers' defaults are: no claim goes or is refused before its time.
            "cleanup.policy": "delete",
            "retention.ms": str(2 * lifetime_ms),
            "retention.bytes": "-1",
            "message.timestamp.type": "CreateTime",
            "message.timestamp.before.max.ms": str(_LONG_MAX),
            "message.timestamp.after.max.ms": str(_LONG_MAX),
            "max.message.bytes": "1048588",
            "segment.ms": str(lifetime_ms),
        }
        try:
            await self._client.admin.create_topics([NewTopic(TOPIC, 1, configs=configs)])
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        self._topic_exists = True

    async def _read_up_to(self, end: int | None) -> None:
        """Take in everything below `end`, or as far as the log goes now."""
        async with self._one_reader:
            try:
                await self._read(end)
            except ApiError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._topic_exists = False
                raise

    async def _read(self, end: int | None) -> None:
        where = TopicPartition(TOPIC, 0)
        if self._next_offset is None:
            since_ms = max(self._client.clock.now_ms() - self._remembered_ms(), 0)
            self._next_offset = await self._reader.offset_of(where, at_time(since_ms))
        while end is None or self._next_offset < end:
            try:
                found = await self._reader.read(
                    TOPIC,
                    0,
                    offset=self._next_offset,
                    max_bytes=_READ_BYTES,
                    max_records=_CLAIMS_PER_READ,
                    wait_ms=0,
                )
            except OffsetOutOfRange:
                # Old claims have expired, or the topic was deleted and made anew.
                self._next_offset = await self._reader.offset_of(where, EARLIEST)
                continue
            if found.next_offset <= self._next_offset:
                if end is None:
                    return
                raise error_for(ErrorCode.UNKNOWN_SERVER_ERROR, "claims are missing", TOPIC)
            for record in found.records:
                self._apply(record)
            self._next_offset = found.next_offset
            if end is None and self._next_offset >= found.high_watermark:
                return
            # After a restart there may be very many: others have their turn.
            await asyncio.sleep(0)

    def _apply(self, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        try:
            claim = Claim(**json.loads(record.value))
            packed = claim.pack()
        except (ValueError, TypeError, struct_error):
            return  # not ours
        name = _digest(record.key)
        before = self._known.get(name)
        if before is not None:
            earlier = Claim.unpack(before)
            if claim.timestamp_ms - earlier.timestamp_ms < self._limits.key_lifetime_ms:
                return
            del self._known[name]
            self._partitions_in_use -= earlier.places
        self._known[name] = packed
        self._pending.pop(name, None)
        self._partitions_in_use += claim.places


def _digest(name: bytes) -> bytes:
    return blake2b(name, digest_size=_NAME_BYTES).digest()


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
