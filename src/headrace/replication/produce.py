"""From the bytes a producer sent to an append: checked, and rewritten where the topic says so."""

from headrace.core.errors import ApiError, ErrorCode
from headrace.log.partition_log import AppendInfo
from headrace.protocol.records.budget import Budget
from headrace.protocol.records.encode import recompress
from headrace.protocol.records.header import (
    HEADER_SIZE,
    BatchHeader,
    crc_matches,
    parse_header,
)
from headrace.protocol.records.patch import set_append_time
from headrace.protocol.records.validate import check_batches, validate_records
from headrace.replication.partition import Partition
from headrace.replication.settings import TopicSettings

# Positions and headers of the batches, and the buffer they are in.
CheckedBatches = tuple[list[tuple[int, BatchHeader]], memoryview]


def append_produced(
    partition: Partition,
    records: memoryview,
    *,
    acks: int,
    now_ms: int,
    produce_version: int,
    budget: Budget | None = None,
) -> AppendInfo:
    """Append one partition's records of a produce request; raises what its response must say.

    `records` is patched in place and not kept. Raises `OverBudget`, with nothing changed, where
    records have to be looked at and are too many for the budget: then `check_produced` in a
    worker, without one, and `Partition.append` here.
    """
    try:
        checked = check_produced(
            partition.settings,
            records,
            now_ms=now_ms,
            produce_version=produce_version,
            budget=budget,
        )
    except ApiError as refusal:
        return duplicate_or_raise(partition, records, refusal)
    return partition.append(checked[0], checked[1], acks)


def check_produced(
    settings: TopicSettings,
    records: memoryview,
    *,
    now_ms: int,
    produce_version: int,
    budget: Budget | None = None,
) -> CheckedBatches:
    """What is to be appended; touches nothing but `records`, so any thread may run it."""
    batches = check_batches(
        records,
        settings.rules,
        now_ms=now_ms,
        produce_version=produce_version,
        budget=budget,
    )
    if settings.codec is not None and batches[0][1].codec != settings.codec:
        if not settings.rules.each_record:
            # What cannot be read cannot be compressed anew; say so in Kafka's code.
            validate_records(records, batches[0][1], settings.rules, now_ms=now_ms, budget=budget)
        records = memoryview(recompress(records, settings.codec, settings.level))
        if len(records) > settings.rules.max_message_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
        batches = [(0, parse_header(records))]
    if settings.append_time:
        set_append_time(records, 0, now_ms)
        batches = [(0, parse_header(records))]
    return batches, records


def duplicate_or_raise(partition: Partition, records: memoryview, refusal: ApiError) -> AppendInfo:
    """Where a batch is that would be refused now and is in the log all the same.

    What is asked of a batch depends on the time and on the topic's configs of the moment. Whoever
    sends again what was taken then must not be refused. Raises `refusal` otherwise.
    """
    # First, whatever is wrong with the batch: the leader may be asked of it.
    partition.require_leader()
    if len(records) >= HEADER_SIZE:
        header = parse_header(records)
        if header.producer_id >= 0 and header.size == len(records):
            known = partition.log.find_duplicate(header)
            if known is not None and crc_matches(records, 0, header):
                return known
    raise refusal
