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
from headrace.text import options, replies
from headrace.text.output import Output
from headrace.text.places import GroupPlace, Place, read_place
from headrace.text.words import BadLine, Words

USAGE: Final = "CONSUME <topic> [PARTITION n] [FROM place] [LIMIT n] [FOLLOW] [TIMES]"
# Records per piece of output: about a millisecond of work, between which others have their turn.
_RECORDS: Final = 500
_FOLLOW_MS: Final = 30_000
# Markers of transactions hold offsets but are no records: how often to look for the end anew.
_LOOK_MS: Final = 100


@dataclass(slots=True)
class Wish:
    """What a line asked for."""

    topic: str
    partition: int | None = None
    place: Place = EARLIEST
    limit: int | None = None
    follow: bool = False
    times: bool = False


def read_wish(words: Words, now_ms: int) -> Wish:
    wish = Wish(options.name(words, USAGE))
    while (option := options.option(words)) is not None:
        match option:
            case "PARTITION":
                wish.partition = options.number(words, "PARTITION <number>")
            case "FROM":
                wish.place = read_place(words, now_ms)
            case "LIMIT":
                wish.limit = options.number(words, "LIMIT <messages>")
            case "FOLLOW":
                wish.follow = True
            case "TIMES":
                wish.times = True
            case _:
                raise BadLine(f"{option[:50]!r} is not understood; write {USAGE}")
    return wish


async def consume(gateway: Gateway, words: Words, out: Output, now_ms: int) -> bytes:
    """Write messages to `out`; the closing line says how many and where to go on."""
    wish = read_wish(words, now_ms)
    places = await _places(gateway, wish)
    ends = await gateway.offsets_of(dict.fromkeys(places, LATEST))
    starts = await _starts(gateway, places, ends)
    reading = _Consume(wish, out, starts, {} if wish.follow else ends)
    if wish.limit != 0 and (wish.follow or reading.unread()):
        wanted = starts if wish.follow else {where: starts[where] for where in reading.unread()}
        async with gateway.stream(wanted) as follower:
            await reading.run(follower)
    following = ",".join(f"{where.partition}:{at}" for where, at in reading.positions.items())
    return replies.ok(count=reading.count, next=following)


class _Consume:
    """One CONSUME under way."""

    def __init__(
        self,
        wish: Wish,
        out: Output,
        starts: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> None:
        self._wish = wish
        self._out = out
        self._ends = ends
        self.positions = dict(starts)
        self.count = 0

    def unread(self) -> list[TopicPartition]:
        """Partitions that have not been read to the end they had at first."""
        return [where for where, end in self._ends.items() if self.positions[where] < end]

    async def run(self, follower: RecordStream) -> None:
        while self._wish.follow or self.unread():
            room = _RECORDS
            if self._wish.limit is not None:
                room = min(room, self._wish.limit - self.count)
                if room <= 0:
                    return
            if self._wish.follow:
                found = await self._out.unless_input(follower.poll(_FOLLOW_MS, room))
                if found is None:
                    return
            else:
                found = await follower.poll(_LOOK_MS, room)
            for where, records in found.items():
                await self._show(where, records)
            for where, position in (await follower.positions()).items():
                self.positions[where] = min(position, self._ends.get(where, position))
            # Others have their turn, however fast this client reads.
            await asyncio.sleep(0)

    async def _show(self, where: TopicPartition, records: Sequence[Record]) -> None:
        end = self._ends.get(where)
        if end is not None and records[-1].offset >= end:
            records = [record for record in records if record.offset < end]
        self.count += len(records)
        await self._out.send(replies.messages(where, records, times=self._wish.times))


async def _places(gateway: Gateway, wish: Wish) -> dict[TopicPartition, int | OffsetSpec]:
    """Where to start in each partition."""
    count = await gateway.partitions(wish.topic)
    numbers = range(count) if wish.partition is None else [wish.partition]
    wanted = [TopicPartition(wish.topic, number) for number in numbers]
    place = wish.place
    if isinstance(place, GroupPlace):
        committed = await gateway.offsets(place.group, wanted)
        return {
            where: committed[where].offset if where in committed else EARLIEST for where in wanted
        }
    if isinstance(place, int) and len(wanted) > 1:
        raise BadLine(f"an offset is one of a partition: add PARTITION 0 to {count - 1}")
    return dict.fromkeys(wanted, place)


async def _starts(
    gateway: Gateway,
    places: dict[TopicPartition, int | OffsetSpec],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    named = [where for where, place in places.items() if isinstance(place, int)]
    firsts = await gateway.offsets_of(dict.fromkeys(named, EARLIEST))
    starts = await gateway.offsets_of(places)
    for where in named:
        first, start, end = firsts[where], starts[where], ends[where]
        if not first <= start <= end:
            error = OffsetOutOfRange(f"{where} holds no offset {start}: it begins at {first}")
            error.hint = f"read from {first} to {end}, or FROM END FOLLOW for what comes"
            raise error
    return starts
