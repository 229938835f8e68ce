"""How files and directories of the log are called; Kafka's names throughout."""

import re
from typing import Final

from headrace.core.ids import Offset, TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
STRAY_SEGMENT: Final = ".stray"
SEGMENT_SUFFIXES: Final = (LOG, INDEX, TIME_INDEX)

LEADER_EPOCHS: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
LOCK: Final = ".lock"

DELETED_DIRECTORY: Final = "-delete"
STRAY_DIRECTORY: Final = "-stray"
# File names end at 255 bytes; Kafka cuts the topic's name so that id and suffix still fit.
_NAME_MAX: Final = 255
_DELETED_PARTITION: Final = re.compile(rf".+-\d+\.[0-9a-f]{{32}}{DELETED_DIRECTORY}")


def offset_name(base_offset: int, suffix: str) -> str:
    """`00000000000000000042.log` for 42 and `.log`."""
    return f"{base_offset:020d}{suffix}"


def parse_offset(name: str, suffix: str) -> Offset | None:
    """The offset a file is named after, or None if the name is not of this kind."""
    digits = name[: -len(suffix)]
    if not name.endswith(suffix) or len(digits) != 20 or not digits.isdecimal():
        return None
    return Offset(int(digits))


def parse_partition(name: str) -> TopicPartition | None:
    """The partition whose directory has this name, or None."""
    topic, dash, digits = name.rpartition("-")
    if not dash or not topic or not digits.isdecimal():
        return None
    return TopicPartition(topic, int(digits))


def removal_name(partition: TopicPartition, unique: str, suffix: str) -> str:
    """The name of a directory that is to be removed: `topic-0.<unique>-delete`."""
    tail = f"-{partition.partition}.{unique}{suffix}"
    return partition.topic[: _NAME_MAX - len(tail)] + tail


def is_deleted_partition(name: str) -> bool:
    """Whether a directory was a partition and is to be removed; its files may be.

    The ending alone does not say so: somebody may keep a `to-delete` beside our data.
    """
    return _DELETED_PARTITION.fullmatch(name) is not None
