"""What the quorum commits becomes the image, batch by batch or from a snapshot."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from headrace.controller.commands import TopicToCreate
from headrace.core.errors import StartupRefused
from headrace.metadata import loader as loader_module
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.loader import MetadataLoader
from headrace.metadata.records import (
    MetadataRecord,
    PartitionChangeRecord,
    RemoveTopicRecord,
    TopicRecord,
    encode_record,
)
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from headrace.protocol.records.header import BatchHeader, parse_header
from headrace.protocol.records.patch import assign_offsets
from tests.unit.metadata.test_builder import image_with

Batches = Iterator[tuple[memoryview, BatchHeader]]


def batches(start: int, *runs: list[MetadataRecord], epoch: int = 3) -> Batches:
    for records in runs:
        batch = encode_batch(
            Record(index, 1, None, encode_record(record), ())
            for index, record in enumerate(records)
        )
        assign_offsets(memoryview(batch), 0, start, epoch)
        yield memoryview(batch), parse_header(batch)
        start += len(records)


def topic(name: str, number: int) -> TopicRecord:
    return TopicRecord(name=name, topic_id=UUID(int=number))


def test_batches_are_applied_in_order_and_the_difference_is_named() -> None:
    loader = MetadataLoader(Image("a-cluster"))
    delta = loader.replay(batches(0, [topic("a", 1), topic("b", 2)], [topic("c", 3)]))
    assert delta == Delta(topics=frozenset("abc"))
    assert loader.end_offset == 3
    assert loader.image.epoch == 3
    delta = loader.replay(batches(3, [RemoveTopicRecord(topic_id=UUID(int=2))], epoch=4))
    assert delta == Delta(topics=frozenset("b"))
    assert (set(loader.image.topics), loader.image.epoch) == ({"a", "c"}, 4)


def test_without_batches_there_is_no_other_image() -> None:
    image = image_with(TopicToCreate("a", 1, 1))
    loader = MetadataLoader(image)
    assert loader.replay(iter(())) == Delta()
    assert loader.image is image


def test_after_a_snapshot_only_what_differs_from_before_is_named() -> None:
    first = image_with(TopicToCreate("a", 1, 1))
    loader = MetadataLoader(Image(first.cluster_id))
    assert loader.load_snapshot(first) == Delta.between(Image(first.cluster_id), first)
    second = image_with(TopicToCreate("b", 1, 1))
    assert loader.load_snapshot(second) == Delta(topics=frozenset("ab"))
    assert loader.image is second


def test_of_very_many_records_the_images_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader_module, "RECORDS_COMPARED_MAX", 2)
    loader = MetadataLoader(Image("a-cluster"))
    many: list[MetadataRecord] = [topic(name, number) for number, name in enumerate("abcd", 1)]
    delta = loader.replay(batches(0, many, [RemoveTopicRecord(topic_id=UUID(int=4))]))
    assert delta == Delta(topics=frozenset("abc"))


def test_what_does_not_fit_leaves_the_image_as_it_was() -> None:
    image = image_with(TopicToCreate("a", 1, 1))
    loader = MetadataLoader(image)
    start = loader.end_offset
    record = PartitionChangeRecord(partition_id=0, topic_id=UUID(int=7), leader=1)
    with pytest.raises(StartupRefused, match=f"damaged at offset {start + 1}"):
        loader.replay(batches(start, [topic("b", 1)], [record]))
    assert loader.image is image
