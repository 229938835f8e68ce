"""One member of a group as a process: polls, commits what it has read, and writes everything down.

Run as `python -m tests.faults.groups.member SETTINGS JOURNAL`, ended by SIGTERM in order.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from types import FrameType

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.group_history import MemberLog

POLL_SECONDS = 0.02
Positions = dict[tuple[str, int], int]


class WritingMember:
    """Commits after each poll that brought records, and again when partitions are taken away."""

    def __init__(self, settings: dict[str, object], topic: str, journal: MemberLog) -> None:
        self._journal = journal
        self._positions: Positions = {}
        self._stopping = False
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        self._consumer.subscribe(
            [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
        )

    def stop(self, _: int, __: FrameType | None) -> None:
        self._stopping = True

    def run(self) -> None:
        while not self._stopping:
            found: dict[tuple[str, int], list[int]] = {}
            for message in self._consumer.consume(100, timeout=POLL_SECONDS):
                if message.error() is None:
                    place = (str(message.topic()), int(str(message.partition())))
                    found.setdefault(place, []).append(int(str(message.offset())))
            if found:
                data = [[*place, offsets] for place, offsets in found.items()]
                self._journal.write("polled", data=data)
                for place, offsets in found.items():
                    self._positions[place] = offsets[-1] + 1
                self._commit({place: self._positions[place] for place in found})
        self._consumer.close()

    def _commit(self, positions: Positions) -> None:
        if not positions:
            return
        offsets = [TopicPartition(*place, offset) for place, offset in positions.items()]
        self._journal.write(
            "committing_now", data=[[*place, offset] for place, offset in positions.items()]
        )
        try:
            done = self._consumer.commit(offsets=offsets, asynchronous=False)
            ok = all(each.error is None for each in done or [])
        except KafkaException:
            ok = False
        self._journal.write("committed", data=ok)

    def _assigned(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._journal.write("assigned", data=_named(partitions))

    def _revoked(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        places = [(each.topic, each.partition) for each in partitions]
        self._commit(
            {place: self._positions[place] for place in places if place in self._positions}
        )
        self._journal.write("revoked", data=_named(partitions))
        for place in places:
            self._positions.pop(place, None)

    def _lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._journal.write("lost", data=_named(partitions))
        for each in partitions:
            self._positions.pop((each.topic, each.partition), None)


def _named(partitions: list[TopicPartition]) -> list[list[object]]:
    return [[each.topic, each.partition] for each in partitions]


def main() -> None:
    settings = json.loads(sys.argv[1])
    topic = settings.pop("topic")
    member = WritingMember(settings, topic, MemberLog(Path(sys.argv[2])))
    signal.signal(signal.SIGTERM, member.stop)
    member.run()


if __name__ == "__main__":
    main()
