"""Broker-side assignors: pure functions from members and topics to who should own what.

`uniform` is even and sticky, "range" (`ranges`) gives each member one stretch of every topic, so
that equal keys of two topics meet in one member, and `roundrobin` deals the partitions out one by
one. `ASSIGNORS` names them as `group.consumer.assignors` does; `model` is what they are given and
give back.
"""

from collections.abc import Mapping
from typing import Final

from headrace.groups.consumer.assignors.model import Assignor
from headrace.groups.consumer.assignors.ranges import assign_ranges
from headrace.groups.consumer.assignors.roundrobin import assign_roundrobin
from headrace.groups.consumer.assignors.uniform import assign_uniform

ASSIGNORS: Final[Mapping[str, Assignor]] = {
    "uniform": assign_uniform,
    "range": assign_ranges,
    "roundrobin": assign_roundrobin,
}
