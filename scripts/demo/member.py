"""One consumer of the demo's group, as a process of its own so that it can be killed.

`python -m scripts.demo.member ADDRESS TOPIC GROUP` writes a line for every stretch of a
partition that it has worked through, and commits it after that: whoever takes over begins there.
"""

import signal
import sys
import time
from types import FrameType

from confluent_kafka import Consumer, KafkaException

SESSION_SECONDS = 2
RECORDS_AT_ONCE = 1_000
# What a real consumer would do with them.
WORK_SECONDS = 0.01


def main(address: str, topic: str, group: str) -> None:
    """Work until told to stop."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "session.timeout.ms": SESSION_SECONDS * 1000,
            "heartbeat.interval.ms": 300,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            "log_level": 0,
        }
    )
    stopping = False

    def stop(_: int, __: FrameType | None) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    consumer.subscribe([topic])
    while not stopping:
        found: dict[int, tuple[int, int]] = {}
        for message in consumer.consume(RECORDS_AT_ONCE, timeout=0.2):
            partition, offset = message.partition(), message.offset()
            if message.error() is not None or partition is None or offset is None:
                continue
            first, _ = found.get(partition, (offset, offset))
            found[partition] = (first, offset)
        if found:
            time.sleep(WORK_SECONDS)
            for partition, (first, last) in found.items():
                print(partition, first, last, flush=True)
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                continue  # the group moved on meanwhile: somebody does this part again
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
