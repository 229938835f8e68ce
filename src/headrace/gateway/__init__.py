"""What HTTP and text ask for, by topic or group: one interface over `headrace.client`.

    gateway = Gateway(client)          # an AsyncClient over sockets, or within the process
    produced = await gateway.produce("orders", [OutRecord(b"...", key=b"42")])
    result = await gateway.read("orders", 0, offset=0)

Its local form hands requests to the handlers of this process, its remote form to a cluster; the
code is the same. Lines, JSON and sockets are left to `web` and `text` above.

    gateway                    `Gateway`: all that may be asked for; `values` is what goes in and
                               out
    producer, batches, batch_sender
                               records to batches, batches to leaders, outcomes back
    reader, partial_batches    a page of a partition, and streams that follow partitions live
    members, group_offsets     members of groups for clients that come and go; offsets from outside
    idempotency_keys           a request that is repeated is answered as the first time
    topics                     topics as they are known here, or asked for
"""

from headrace.gateway.gateway import Gateway
from headrace.gateway.group_offsets import GroupNotEmpty
from headrace.gateway.members import GatewayMember, MemberSettings
from headrace.gateway.reader import RecordStream
from headrace.gateway.values import (
    GatewayLimits,
    IdempotencyKeyReused,
    KeyLifetimeTooLong,
    NotAttempted,
    OutRecord,
    Produced,
    ReadResult,
    TooManyKeys,
    TooManyRecords,
)

__all__ = [
    "Gateway",
    "GatewayLimits",
    "GatewayMember",
    "GroupNotEmpty",
    "IdempotencyKeyReused",
    "KeyLifetimeTooLong",
    "MemberSettings",
    "NotAttempted",
    "OutRecord",
    "Produced",
    "ReadResult",
    "RecordStream",
    "TooManyKeys",
    "TooManyRecords",
]
