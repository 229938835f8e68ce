"""Publishers of an image: their order, and what those hear that come late."""

import asyncio

import pytest

from headrace.controller.commands import TopicToCreate
from headrace.metadata.cache import MetadataCache
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.publisher import MetadataPublisher, MetadataPublishers, PublisherOrder
from headrace.metadata.records import MetadataRecord, RemoveTopicRecord, TopicRecord
from tests.support.metadata import cluster, machine
from tests.unit.metadata.test_builder import image_with

Call = tuple[str, set[str], set[str], Delta]

EMPTY = cluster(0, 1)
ONE = image_with(TopicToCreate("a", 1, 1))


def after(image: Image, *records: MetadataRecord) -> Image:
    return machine().apply(image, records)


class Told:
    """Notes what publishers are told, with what is in the cache at that time."""

    def __init__(self) -> None:
        self.cache = MetadataCache(EMPTY)
        self.publishers = MetadataPublishers(self.cache)
        self.calls: list[Call] = []

    def publisher(self, name: str) -> MetadataPublisher:
        def publish(old: Image, new: Image, delta: Delta) -> None:
            assert self.cache.image is not new
            self.calls.append((name, set(old.topics), set(new.topics), delta))

        return publish

    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


async def test_all_hear_of_an_image_in_one_order_before_requests_find_it() -> None:
    told = Told()
    for order in (PublisherOrder.CONFIGS, PublisherOrder.REPLICAS, PublisherOrder.COORDINATORS):
        told.publishers.add(order, told.publisher(order.name), seen=EMPTY)
    told.publishers.add(PublisherOrder.REPLICAS, told.publisher("second"), seen=EMPTY)
    await told.publishers.publish(ONE)
    assert told.names() == ["REPLICAS", "second", "COORDINATORS", "CONFIGS"]
    assert told.cache.image is ONE


async def test_one_that_comes_late_hears_of_all_there_is_and_then_of_changes() -> None:
    told = Told()
    await told.publishers.publish(ONE)
    added = False

    def on_added() -> None:
        nonlocal added
        added = True

    told.publishers.on_added = on_added
    heard: list[tuple[set[str], Delta]] = []
    told.publishers.add(
        PublisherOrder.COORDINATORS, lambda old, _, delta: heard.append((set(old.topics), delta))
    )
    assert added
    await told.publishers.publish(ONE)
    await told.publishers.publish(ONE)
    records = [RemoveTopicRecord(topic_id=ONE.topics["a"].id)]
    gone = after(ONE, *records)
    await told.publishers.publish(gone, Delta.of_records(records, ONE, gone))
    assert heard == [
        (set(), Delta.between(Image(ONE.cluster_id), ONE)),
        ({"a"}, Delta(topics=frozenset({"a"}))),
    ]
    assert heard[0][1].topics == {"a"}
    assert heard[0][1].brokers == {0, 1}


async def test_one_that_saw_an_older_image_hears_of_everything_since() -> None:
    told = Told()
    await told.publishers.publish(ONE)
    told.publishers.add(PublisherOrder.CONFIGS, told.publisher("late"), seen=EMPTY)
    records = [TopicRecord(name="b", topic_id=ONE.topics["a"].id)]
    two = after(ONE, RemoveTopicRecord(topic_id=ONE.topics["a"].id), *records)
    await told.publishers.publish(two, Delta(topics=frozenset({"a", "b"})))
    assert [delta for *_, delta in told.calls] == [Delta(topics=frozenset({"b"}))]


async def test_one_that_is_added_while_another_is_waited_for_is_not_left_out() -> None:
    told = Told()
    gate = asyncio.Event()

    async def slow(old: Image, new: Image, delta: Delta) -> None:
        told.calls.append(("slow", set(old.topics), set(new.topics), delta))
        await gate.wait()

    told.publishers.add(PublisherOrder.COORDINATORS, slow, seen=EMPTY)
    publishing = asyncio.ensure_future(told.publishers.publish(ONE))
    await asyncio.sleep(0)
    told.publishers.add(PublisherOrder.REPLICAS, told.publisher("added"))
    gate.set()
    await publishing
    assert told.names() == ["slow", "added"]
    assert told.cache.image is ONE


async def test_one_that_fails_does_not_keep_the_others_from_hearing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = Told()

    def broken(*_: object) -> None:
        raise RuntimeError("broken publisher")

    told.publishers.add(PublisherOrder.REPLICAS, broken, seen=EMPTY)
    told.publishers.add(PublisherOrder.CONFIGS, told.publisher("other"), seen=EMPTY)
    await told.publishers.publish(ONE)
    assert told.names() == ["other"]
    assert "broken publisher" in caplog.text
    assert told.cache.image is ONE
