"""CONSUME: what a topic holds, and with FOLLOW what is yet to come."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.client.core.models import EARLIEST, LATEST, OffsetSpec
from headrace.core.errors import OffsetOutOfRange
from headrace.core.ids import TopicPartition
from headrace.gateway import Gateway, RecordStream
from headrace.protocol.records.decode import Record
from headrace.text import options, responses
from headrace.text.offset_spec import CommittedByGroup, TextOffsetSpec, parse_offset_spec
from headrace.text.output import Output
from headrace.text.tokenizer import BadLine, Tokenizer

USAGE: Final = "CONSUME <topic> [PARTITION n] [FROM place] [LIMIT n] [FOLLOW] [TIMES]"
# Records per piece of output: about a millisecond of work, between which others have their turn.
_RECORDS: Final = 500
_FOLLOW_MS: Final = 30_000
# Markers of transactions hold offsets but are no records: how often to look for the end anew.
_POLL_MS: Final = 100


@dataclass(slots=True)
class ConsumeOptions:
    """What a line asked for."""

    topic: str
    partition: int | None = None
    start: TextOffsetSpec = EARLIEST
    limit: int | None = None
    follow: bool = False
    times: bool = False


def parse_consume_options(tokens: Tokenizer, now_ms: int) -> ConsumeOptions:
    wanted = ConsumeOptions(options.name(tokens, USAGE))
    while (option := options.option(tokens)) is not None:
        match option:
            case "PARTITION":
                wanted.partition = options.number(tokens, "PARTITION <number>")
            case "FROM":
                wanted.start = parse_offset_spec(tokens, now_ms)
            case "LIMIT":
                wanted.limit = options.number(tokens, "LIMIT <messages>")
            case "FOLLOW":
                wanted.follow = True
            case "TIMES":
                wanted.times = True
            case _:
                raise BadLine(f"{option[:50]!r} is not understood; write {USAGE}")
    return wanted


async def consume(gateway: Gateway, tokens: Tokenizer, out: Output, now_ms: int) -> bytes:
    """Write messages to `out`; the closing line says how many and where to go on."""
    asked = parse_consume_options(tokens, now_ms)
    specs = await _offset_specs(gateway, asked)
    ends = await gateway.offsets_of(dict.fromkeys(specs, LATEST))
    starts = await _starts(gateway, specs, ends)
    reading = _Consume(asked, out, starts, {} if asked.follow else ends)
    if asked.limit != 0 and (asked.follow or reading.unread()):
        wanted = starts if asked.follow else {where: starts[where] for where in reading.unread()}
        async with gateway.stream(wanted) as stream:
            await reading.run(stream)
    following = ",".join(f"{where.partition}:{at}" for where, at in reading.positions.items())
    return responses.ok(count=reading.count, next=following)


class _Consume:
    """One CONSUME under way."""

    def __init__(
        self,
        consume_options: ConsumeOptions,
        out: Output,
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> None:
        self._options = consume_options
        self._out = out
        self._ends = ends
        self.positions = dict(starts)
        self.count = 0

    def unread(self) -> list[TopicPartition]:
        """Partitions that have not been read to the end they had at first."""
        return [where for where, end in self._ends.items() if self.positions[where] < end]

    async def run(self, stream: RecordStream) -> None:
        while self._options.follow or self.unread():
            limit = _RECORDS
            if self._options.limit is not None:
                limit = min(limit, self._options.limit - self.count)
                if limit <= 0:
                    return
            if self._options.follow:
                found = await self._out.unless_input(stream.poll(_FOLLOW_MS, limit))
                if found is None:
                    return
            else:
                found = await stream.poll(_POLL_MS, limit)
            for where, records in found.items():
                await self._send_records(where, records)
            for where, position in (await stream.positions()).items():
                self.positions[where] = min(position, self._ends.get(where, position))
            # Others have their turn, however fast this client reads.
            await asyncio.sleep(0)

    async def _send_records(self, where: TopicPartition, records: Sequence[Record]) -> None:
        end = self._ends.get(where)
        if end is not None and records[-1].offset >= end:
            records = [record for record in records if record.offset < end]
        self.count += len(records)
        await self._out.send(responses.messages(where, records, times=self._options.times))


async def _offset_specs(
    gateway: Gateway, asked: ConsumeOptions
) -> dict[TopicPartition, int | OffsetSpec]:
    """Where to start in each partition."""
    count = await gateway.partitions(asked.topic)
    numbers = range(count) if asked.partition is None else [asked.partition]
    wanted = [TopicPartition(asked.topic, number) for number in numbers]
    start = asked.start
    if isinstance(start, CommittedByGroup):
        committed = await gateway.offsets(start.group, wanted)
        return {
            where: committed[where].offset if where in committed else EARLIEST for where in wanted
        }
    if isinstance(start, int) and len(wanted) > 1:
        raise BadLine(f"an offset is one of a partition: add PARTITION 0 to {count - 1}")
    return dict.fromkeys(wanted, start)


async def _starts(
    gateway: Gateway,
    specs: dict[TopicPartition, int | OffsetSpec],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    named = [where for where, place in specs.items() if isinstance(place, int)]
    firsts = await gateway.offsets_of(dict.fromkeys(named, EARLIEST))
    starts = await gateway.offsets_of(specs)
    for where in named:
        first, start, end = firsts[where], starts[where], ends[where]
        if not first <= start <= end:
            error = OffsetOutOfRange(f"{where} holds no offset {start}: it begins at {first}")
            error.hint = f"read from {first} to {end}, or FROM END FOLLOW for what comes"
            raise error
    return starts
