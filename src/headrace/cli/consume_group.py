"""Consuming as a member of a group: `headrace consume TOPIC --group NAME`."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import typer

from headrace.cli.consumer_status import ConsumerStatus

if TYPE_CHECKING:
    from headrace.client import Client, Consumer, ConsumerSettings, ReceivedRecord
    from headrace.client.core.settings import Isolation
    from headrace.core.ids import TopicPartition

POLL_MS = 500
_RECORDS_PER_POLL = 500
# A broker that is away is told to people after this long, rather than after a whole call.
_COMMIT_MS = 2_000


def member_settings(
    group: str, protocol: str, start: str, isolation: "Isolation"
) -> "ConsumerSettings":
    """Settings of the member; wrong ones are wrong usage."""
    from headrace.client import ConsumerSettings

    if not group:
        raise typer.BadParameter("the group needs a name", param_hint="--group")
    if protocol not in ("classic", "consumer"):
        raise typer.BadParameter(
            f"{protocol!r} is neither classic nor consumer", param_hint="--group-protocol"
        )
    if start not in ("beginning", "end"):
        raise typer.BadParameter(
            f"with --group this is beginning or end, not {start!r}; "
            "`headrace group reset` moves a group anywhere",
            param_hint="--from",
        )
    return ConsumerSettings(
        group_id=group,
        group_protocol="classic" if protocol == "classic" else "consumer",
        offset_reset="earliest" if start == "beginning" else "latest",
        auto_commit=False,
        isolation=isolation,
    )


def shared_records(
    client: "Client",
    topic: str,
    settings: "ConsumerSettings",
    count: int | None,
    *,
    follow: bool,
) -> "Iterator[ReceivedRecord]":
    """Records of this member's partitions; each poll's are committed when all were taken."""
    from headrace.client import LATEST, ReceivedRecord
    from headrace.core.ids import TopicPartition

    described = client.admin.describe_topics([topic])[topic]
    partitions = [TopicPartition(topic, each.partition) for each in described.partitions]
    listed = client.admin.list_offsets(dict.fromkeys(partitions, LATEST))
    ends = None if follow else {each: found.offset for each, found in listed.items()}
    assigned: list[TopicPartition] = []
    left, watch = count, ConsumerStatus()
    is_due = False  # whether something was printed and is not committed
    with client.consumer(settings) as consumer:
        consumer.subscribe([topic], on_assigned=assigned.extend)
        while left is None or left > 0:
            wanted = _RECORDS_PER_POLL if left is None else min(left, _RECORDS_PER_POLL)
            found = consumer.poll(POLL_MS, wanted)
            watch.report_broker(consumer.last_error)
            watch.report_group(settings.group_id, has_partitions=bool(found or consumer.assignment))
            for where, records in found.items():
                for record in records:
                    yield ReceivedRecord(where.topic, where.partition, *record)
            if found:
                left = None if left is None else left - sum(map(len, found.values()))
                sys.stdout.flush()  # what is committed has been printed
                is_due = True
            if is_due:
                is_due = not _commit(consumer, watch)
            elif ends is not None and assigned and _has_read(consumer, ends):
                return
        if is_due:
            consumer.commit()  # the last chance: with all the patience a call has


def _commit(consumer: "Consumer", watch: ConsumerStatus) -> bool:
    """Commit what was printed; False if the broker is away and it must be tried again."""
    from headrace.client import CallTimedOut, CommitFailed

    try:
        consumer.commit(timeout_ms=_COMMIT_MS)
    except CommitFailed as error:
        # The group moved on meanwhile: whoever has the partitions now will see these again.
        print(f"headrace: not committed: {error}", file=sys.stderr)
    except CallTimedOut as error:
        watch.report_broker(error)
        return False
    return True


def _has_read(consumer: "Consumer", ends: "dict[TopicPartition, int]") -> bool:
    return all(consumer.position(each) >= ends.get(each, 0) for each in consumer.assignment)
