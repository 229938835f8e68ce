"""From the bytes a producer sent to an append: checked, and rewritten where the topic says so."""

from headrace.core.errors import ApiError, ErrorCode
from headrace.log.partition_log import AppendInfo
from headrace.protocol.records.encode import recompress
from headrace.protocol.records.header import parse_header
from headrace.protocol.records.patch import set_append_time
from headrace.protocol.records.validate import check_batches, validate_records
from headrace.replication.partition import Partition


def append_produced(
    partition: Partition, records: memoryview, *, acks: int, now_ms: int, produce_version: int
) -> AppendInfo:
    """Append one partition's records of a produce request; raises what its answer must say.

    `records` is patched in place and not kept.
    """
    settings = partition.settings
    batches = check_batches(records, settings.rules, now_ms=now_ms, produce_version=produce_version)
    if settings.codec is not None and batches[0][1].codec != settings.codec:
        if not settings.rules.each_record:
            # What cannot be read cannot be compressed anew; say so in Kafka's code.
            validate_records(records, batches[0][1], settings.rules, now_ms=now_ms)
        records = memoryview(recompress(records, settings.codec, settings.level))
        if len(records) > settings.rules.max_message_bytes:
            raise ApiError(ErrorCode.MESSAGE_TOO_LARGE)
        batches = [(0, parse_header(records))]
    if settings.append_time:
        set_append_time(records, 0, now_ms)
        batches = [(0, parse_header(records))]
    return partition.append(batches, records, acks)
