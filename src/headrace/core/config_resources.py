"""Things that have configs, as Kafka numbers their kinds; broker and clients use the same."""

from enum import IntEnum
from typing import NamedTuple


class ConfigResourceType(IntEnum):
    """What a set of configs belongs to; values as on the wire."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """One thing that has configs; the broker named "" stands for all brokers."""

    type: ConfigResourceType
    name: str
