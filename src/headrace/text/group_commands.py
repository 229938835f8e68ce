"""COMMIT, OFFSETS, RESET and GROUPS."""

from typing import Final

from headrace.client.core.group_models import PartitionLag
from headrace.client.core.models import OffsetSpec
from headrace.core.ids import TopicPartition
from headrace.gateway import Gateway
from headrace.text import options, responses
from headrace.text.membership import TextMembership
from headrace.text.offset_spec import CommittedByGroup, parse_offset_spec
from headrace.text.tokenizer import BadLine, Tokenizer

COMMIT_USAGE: Final = "COMMIT <group> <topic> <partition> <offset>"
OFFSETS_USAGE: Final = "OFFSETS <group> [<topic>]"
RESET_USAGE: Final = "RESET <group> <topic> [PARTITION n] TO <place>"


async def commit(gateway: Gateway, membership: TextMembership, tokens: Tokenizer) -> bytes:
    """The next offset that the group will read; from a member or from outside."""
    group = options.name(tokens, COMMIT_USAGE)
    topic = options.name(tokens, COMMIT_USAGE)
    where = TopicPartition(topic, options.number(tokens, COMMIT_USAGE, highest=2**31 - 1))
    offset = options.number(tokens, COMMIT_USAGE)
    options.no_more(tokens, COMMIT_USAGE)
    if membership.group == group:
        await membership.commit(where, offset)
    else:
        await gateway.commit(group, {where: offset})
    return responses.ok()


async def offsets(gateway: Gateway, tokens: Tokenizer) -> bytes:
    """What the group has committed and how far behind it is."""
    group = options.name(tokens, OFFSETS_USAGE)
    topic = tokens.next()
    options.no_more(tokens, OFFSETS_USAGE)
    found = [
        lag
        for lag in await gateway.lag(group)
        if topic is None or lag.partition.topic == topic.decode(errors="replace")
    ]
    return b"".join(_line(lag) for lag in found) + responses.ok(count=len(found))


def _line(lag: PartitionLag) -> bytes:
    """A group that is said to have read more than there is has no lag, and is told apart."""
    beyond = ""
    if lag.committed is not None and lag.end is not None and lag.committed > lag.end:
        beyond = f" beyond_end={lag.committed - lag.end}"
    return (
        f"OFFSET {lag.partition.topic} {lag.partition.partition} committed={_known(lag.committed)}"
        f" end={_known(lag.end)} lag={_known(lag.lag)}{beyond}\n".encode()
    )


def _known(value: int | None) -> str:
    return "-" if value is None else str(value)


async def reset(gateway: Gateway, tokens: Tokenizer, now_ms: int) -> bytes:
    """Move a group that nobody reads in to another place."""
    group = options.name(tokens, RESET_USAGE)
    topic = options.name(tokens, RESET_USAGE)
    partition: int | None = None
    word = options.option(tokens)
    if word == "PARTITION":
        partition = options.number(tokens, RESET_USAGE, highest=2**31 - 1)
        word = options.option(tokens)
    if word != "TO":
        raise BadLine(f"write {RESET_USAGE}")
    spec = parse_offset_spec(tokens, now_ms)
    options.no_more(tokens, RESET_USAGE)
    count = await gateway.partitions(topic)
    numbers = range(count) if partition is None else [partition]
    wanted = [TopicPartition(topic, number) for number in numbers]
    specs: dict[TopicPartition, int | OffsetSpec] = {}
    if isinstance(spec, CommittedByGroup):
        for where, committed in (await gateway.offsets(spec.group, wanted)).items():
            specs[where] = committed.offset
    elif isinstance(spec, int) and len(wanted) > 1:
        raise BadLine(f"an offset is one of a partition: add PARTITION 0 to {count - 1}")
    else:
        specs = dict.fromkeys(wanted, spec)
    chosen = await gateway.reset(group, specs)
    lines = [_moved(where, specs[where], offset) for where, offset in chosen.items()]
    return b"".join(lines) + responses.ok(count=len(chosen))


def _moved(where: TopicPartition, wanted: int | OffsetSpec, offset: int) -> bytes:
    """An offset that the partition does not hold has become the nearest that it does."""
    instead = f" instead_of={wanted}" if isinstance(wanted, int) and wanted != offset else ""
    return f"OFFSET {where.topic} {where.partition} committed={offset}{instead}\n".encode()


async def groups(gateway: Gateway, tokens: Tokenizer) -> bytes:
    """Every group with its state and protocol."""
    options.no_more(tokens, "GROUPS")
    found = await gateway.admin.list_groups()
    lines = [
        f"GROUP {group.group_id} state={group.state} type={group.group_type}\n".encode()
        for group in found
    ]
    return b"".join(lines) + responses.ok(count=len(found))
