"""The commands of one connection, run one after the other on the gateway."""

import asyncio
from collections.abc import Sequence
from typing import Final

from headrace.client.core.models import EARLIEST, LATEST, NewTopic
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.gateway import Gateway
from headrace.gateway.values import OutRecord
from headrace.text import options, responses
from headrace.text.consume import consume
from headrace.text.group_commands import commit, groups, offsets, reset
from headrace.text.lines import Publish
from headrace.text.membership import TextMembership
from headrace.text.output import Output
from headrace.text.tokenizer import BadLine, Tokenizer

HELP: Final = """\
PUBLISH <topic> [KEY key] [PARTITION n] [HEADER name=value] [AT ms] <message>
PUBLISH <topic> [...] LENGTH <bytes>, then the payload on the lines that follow
CONSUME <topic> [PARTITION n] [FROM place] [LIMIT n] [FOLLOW] [TIMES]
JOIN <group> <topic> [<topic> ...]; POLL [LIMIT n] [WAIT ms]; LEAVE
COMMIT <group> <topic> <partition> <offset>
OFFSETS <group> [<topic>]
RESET <group> <topic> [PARTITION n] TO <place>
CREATE <topic> [PARTITIONS n] [CONFIG name=value]; TOPICS; DESCRIBE <topic>; GROUPS
QUIT
place: BEGINNING, END, an offset, 2026-01-31T12:00:00Z, @ms, -15m, GROUP <group>
"""
CREATE_USAGE: Final = "CREATE <topic> [PARTITIONS n] [CONFIG name=value]"


class TextSession:
    """What one client has asked for; `is_over` after QUIT."""

    def __init__(self, gateway: Gateway, out: Output) -> None:
        self._gateway = gateway
        self._out = out
        self._membership = TextMembership(gateway)
        self.is_over = False

    async def publish(self, run: Sequence[Publish]) -> bytes:
        """Records that came together go together: one batch per topic and partition."""
        by_topic: dict[str, list[OutRecord]] = {}
        for topic, record in run:
            found = by_topic.get(topic)
            if found is None:
                by_topic[topic] = [record]
            else:
                found.append(record)
        if len(by_topic) == 1:
            topic, records = by_topic.popitem()
            return b"".join(await self._produce(topic, records))
        responses = await asyncio.gather(
            *(self._produce(topic, records) for topic, records in by_topic.items())
        )
        lines = {topic: iter(response) for topic, response in zip(by_topic, responses, strict=True)}
        return b"".join(next(lines[topic]) for topic, _ in run)

    async def _produce(self, topic: str, records: Sequence[OutRecord]) -> list[bytes]:
        try:
            return responses.produced(await self._gateway.produce(topic, records))
        except HeadraceError as error:
            return [responses.failed(error)] * len(records)

    async def command(self, line: bytes) -> bytes:
        """Run a line that is no PUBLISH; its closing line."""
        try:
            return await self._run(Tokenizer(line))
        except HeadraceError as error:
            return responses.failed(error)

    async def _run(self, tokens: Tokenizer) -> bytes:
        verb = (tokens.next() or b"").decode(errors="replace")
        gateway, now_ms = self._gateway, self._gateway.client.clock.now_ms()
        match verb.upper():
            case "CONSUME":
                return await consume(gateway, tokens, self._out, now_ms)
            case "JOIN":
                return await self._membership.join(tokens)
            case "POLL":
                return await self._membership.poll(tokens, self._out)
            case "LEAVE":
                return await self._membership.leave()
            case "COMMIT":
                return await commit(gateway, self._membership, tokens)
            case "OFFSETS":
                return await offsets(gateway, tokens)
            case "RESET":
                return await reset(gateway, tokens, now_ms)
            case "CREATE":
                return await self._create(tokens)
            case "TOPICS":
                return await self._topics(tokens)
            case "DESCRIBE":
                return await self._describe(tokens)
            case "GROUPS":
                return await groups(gateway, tokens)
            case "HELP":
                return HELP.encode() + responses.ok()
            case "STOP":
                return responses.ok()
            case "QUIT":
                self.is_over = True
                if self._membership.group is not None:
                    return await self._membership.leave()
                return responses.ok()
        raise options.UnknownCommand(verb[:50])

    async def _create(self, tokens: Tokenizer) -> bytes:
        topic = options.name(tokens, CREATE_USAGE)
        count, configs = -1, {}
        while (option := options.option(tokens)) is not None:
            match option:
                case "PARTITIONS":
                    count = options.number(tokens, "PARTITIONS <number>", highest=2**31 - 1)
                case "CONFIG":
                    key, equals, value = options.name(tokens, CREATE_USAGE).partition("=")
                    if not equals:
                        raise BadLine(f"write {CREATE_USAGE}")
                    configs[key] = value
                case _:
                    raise BadLine(f"{option[:50]!r} is not understood; write {CREATE_USAGE}")
        await self._gateway.admin.create_topics([NewTopic(topic, count, configs=configs)])
        return responses.ok(partitions=await self._gateway.partitions(topic, create=True))

    async def _topics(self, tokens: Tokenizer) -> bytes:
        options.no_more(tokens, "TOPICS")
        found = await self._gateway.admin.list_topics()
        lines = [
            f"TOPIC {topic.name} partitions={len(topic.partitions)}\n".encode() for topic in found
        ]
        return b"".join(lines) + responses.ok(count=len(found))

    async def _describe(self, tokens: Tokenizer) -> bytes:
        topic = options.name(tokens, "DESCRIBE <topic>")
        options.no_more(tokens, "DESCRIBE <topic>")
        admin = self._gateway.admin
        parts = (await admin.describe_topics([topic]))[topic].partitions
        every = [TopicPartition(topic, part.partition) for part in parts if part.leader >= 0]
        first = await admin.list_offsets(dict.fromkeys(every, EARLIEST))
        end = await admin.list_offsets(dict.fromkeys(every, LATEST))
        lines = []
        for part in parts:
            where = TopicPartition(topic, part.partition)
            span = f"start={first[where].offset} end={end[where].offset}" if where in end else ""
            lines.append(
                f"PARTITION {topic} {part.partition} leader={part.leader} {span}\n".encode()
            )
        return b"".join(lines) + responses.ok(count=len(parts))

    async def close(self) -> None:
        """The client has gone, or the listener closes."""
        await self._membership.end()
