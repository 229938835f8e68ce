"""Who is told when this node begins or ceases to lead a partition.

A coordinator keeps the state of the groups whose partition is led here: it loads them when the
partition is elected and forgets them when it resigns.
"""

import logging
from functools import partial
from typing import Protocol

from headrace.core.ids import LeaderEpoch, TopicPartition
from headrace.core.shared_calls import call_each

logger = logging.getLogger(__name__)


class LeadershipListener(Protocol):
    """Called on the event loop, in the turn in which the partition changes; must not block."""

    def on_elected(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        """This node leads it from now on; also where it led before, in an older epoch."""
        ...

    def on_resigned(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        """This node no longer leads it: it follows, was deleted, moved away or is offline.

        `leader_epoch` is the one that it led in last. Nothing can be appended any more.
        """
        ...


class LeadershipListeners:
    """Those who have subscribed, in the order in which they came."""

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: list[LeadershipListener] = []

    def add(self, listener: LeadershipListener) -> None:
        self._listeners.append(listener)

    def elected(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        call = partial(_elected, partition, leader_epoch)
        call_each(logger, "a listener of elections", self._listeners, call)

    def resigned(self, partition: TopicPartition, leader_epoch: LeaderEpoch) -> None:
        call = partial(_resigned, partition, leader_epoch)
        call_each(logger, "a listener of resignations", self._listeners, call)


def _elected(partition: TopicPartition, epoch: LeaderEpoch, listener: LeadershipListener) -> None:
    listener.on_elected(partition, epoch)


def _resigned(partition: TopicPartition, epoch: LeaderEpoch, listener: LeadershipListener) -> None:
    listener.on_resigned(partition, epoch)
