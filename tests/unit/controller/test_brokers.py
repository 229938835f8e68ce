"""Brokers: registration and its epochs, leader epochs, producer ids."""

from uuid import UUID

import pytest

from headrace.controller.commands import (
    AllocateProducerIds,
    BumpLeaderEpochs,
    CreateTopics,
    ProducerIdBlock,
    RegisterBroker,
    TopicToCreate,
    UnfenceBroker,
)
from headrace.core.errors import ApiError, ErrorCode
from headrace.core.ids import NodeId
from headrace.machine.interface import Command, Reply
from headrace.metadata.image import Image
from tests.support.metadata import ENDPOINTS, cluster, machine

MACHINE = machine()
NODE = NodeId(0)


def run(image: Image, command: Command[Reply]) -> tuple[Image, Reply]:
    decision = MACHINE.decide(image, command)
    return MACHINE.apply(image, decision.records), decision.reply


def register(incarnation: int) -> RegisterBroker:
    return RegisterBroker(NODE, UUID(int=incarnation), ENDPOINTS, rack="r")


def test_a_broker_is_fenced_until_it_asks_to_serve() -> None:
    image, epoch = run(cluster(), register(1))
    broker = image.brokers[0]
    assert broker.fenced
    assert not broker.active
    assert (broker.epoch, broker.endpoints, broker.rack) == (epoch, ENDPOINTS, "r")
    image, _ = run(image, UnfenceBroker(NODE, epoch))
    assert image.brokers[0].active


def test_the_broker_epoch_is_the_offset_of_its_registration_and_grows() -> None:
    image, first = run(cluster(), register(1))
    assert image.offset == first
    image, _ = run(image, UnfenceBroker(NODE))
    image, second = run(image, register(2))
    assert second == first + 2
    assert image.brokers[0].fenced, "a new incarnation has to ask again"


def test_registering_the_same_incarnation_again_changes_nothing() -> None:
    image, epoch = run(cluster(), register(1))
    decision = MACHINE.decide(image, register(1))
    assert decision.reply == epoch
    assert not decision.records


def test_unfencing_a_broker_that_serves_changes_nothing() -> None:
    assert not MACHINE.decide(cluster(0), UnfenceBroker(NODE)).records


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (UnfenceBroker(NodeId(9)), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (UnfenceBroker(NODE, 55), ErrorCode.STALE_BROKER_EPOCH),
        (AllocateProducerIds(NodeId(9)), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (AllocateProducerIds(NODE, 55), ErrorCode.STALE_BROKER_EPOCH),
        (BumpLeaderEpochs(NodeId(9)), ErrorCode.BROKER_ID_NOT_REGISTERED),
    ],
)
def test_an_unknown_or_outdated_broker_is_refused(
    command: Command[object], code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        MACHINE.decide(cluster(0), command)
    assert refused.value.code is code


def test_the_leader_epoch_grows_in_every_partition_the_broker_leads() -> None:
    image, _ = run(
        cluster(0, 1), CreateTopics((TopicToCreate("t", assignments=((0, (0,)), (1, (1,)))),))
    )
    image, count = run(image, BumpLeaderEpochs(NODE))
    assert count == 1
    mine, other = image.topics["t"].partitions
    assert (mine.leader, mine.leader_epoch, mine.partition_epoch) == (0, 1, 1)
    assert (other.leader, other.leader_epoch, other.partition_epoch) == (1, 0, 0)
    assert mine.isr == mine.replicas == (0,)


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    image, first = run(cluster(0), AllocateProducerIds(NODE))
    image, second = run(image, AllocateProducerIds(NODE))
    assert (first, second) == (ProducerIdBlock(0, 1000), ProducerIdBlock(1000, 1000))
    assert image.next_producer_id == 2000
