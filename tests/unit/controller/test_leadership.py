"""The controller on a quorum that commits, elects and resigns as it likes."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any
from uuid import UUID

import pytest

from headrace.controller import controller as controller_module
from headrace.controller.commands import (
    CreateTopics,
    RegisterBroker,
    TopicCreation,
    TopicToCreate,
    UnfenceBroker,
)
from headrace.controller.controller import BATCHES_IN_FLIGHT_MAX, Controller
from headrace.core.broker_configs import BrokerConfig
from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import NodeId, Offset
from headrace.machine.interface import Command
from headrace.metadata.cache import MetadataCache
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image
from headrace.metadata.publisher import MetadataPublishers, PublisherOrder
from headrace.metadata.records import TopicRecord
from headrace.protocol.schemas.metadata_security import RemoveAccessControlEntryRecord
from tests.simulation.loop import SeededRandomness
from tests.support.metadata import ENDPOINTS, InlineExecutor
from tests.support.quorum import ScriptedQuorum

NODE = NodeId(0)
PATIENCE_SECONDS = 5


def create(name: str, *, validate_only: bool = False) -> CreateTopics:
    return CreateTopics((TopicToCreate(name, 1, 1),), validate_only)


async def settle() -> None:
    """Let everything happen that waits for nothing from outside."""
    for _ in range(20):
        await asyncio.sleep(0)


class Run:
    """A controller with a registered broker, on a quorum that now waits to be told to commit."""

    def __init__(self) -> None:
        self.quorum = ScriptedQuorum()
        self.cache = MetadataCache()
        publishers = self.publishers = MetadataPublishers(self.cache)
        self.deltas: list[Delta] = []
        publishers.add(PublisherOrder.REPLICAS, lambda _, __, delta: self.deltas.append(delta))
        self.controller = Controller(
            BrokerConfig(),
            "a-cluster",
            self.quorum,
            publishers,
            randomness=SeededRandomness(Random(1)),
            executor=InlineExecutor(),
        )

    async def start(self) -> "Run":
        await self.controller.start()
        await self.controller.submit(RegisterBroker(NODE, UUID(int=1), ENDPOINTS))
        await self.controller.submit(UnfenceBroker(NODE))
        self.quorum.commits_at_once = False
        self.deltas.clear()
        return self

    async def submit(self, *commands: Command[Any]) -> "list[asyncio.Task[Any]]":
        """Submitted one by one, each decided and appended by itself."""
        tasks = []
        for command in commands:
            tasks.append(asyncio.ensure_future(self.controller.submit(command)))
            await settle()
        return tasks

    @property
    def topics(self) -> set[str]:
        assert self.cache.image.topics == self.controller.image.topics
        return set(self.cache.image.topics)


async def outcomes(tasks: Sequence[Awaitable[Any]]) -> list[ErrorCode]:
    """Of CreateTopics: of the topic, or of the command as a whole."""

    def code(outcome: Any) -> ErrorCode:
        if isinstance(outcome, (ApiError, StorageError)):
            return outcome.code
        (topic,) = outcome
        assert isinstance(topic, TopicCreation)
        return topic.error

    return [code(each) for each in await asyncio.gather(*tasks, return_exceptions=True)]


async def test_nothing_is_told_before_the_quorum_says_that_it_is_committed() -> None:
    run = await Run().start()
    (waiting,) = await run.submit(create("t"))
    assert not waiting.done()
    assert not run.topics
    run.quorum.commit()
    assert await outcomes([waiting]) == [ErrorCode.NONE]
    assert run.topics == {"t"}
    await run.controller.stop()


async def test_several_batches_are_in_flight_and_each_is_answered_when_it_is_committed() -> None:
    run = await Run().start()
    a, b, c = await run.submit(create("a"), create("b"), create("c"))
    run.quorum.commit(1)
    await settle()
    assert [a.done(), b.done(), c.done()] == [True, False, False]
    assert run.topics == {"a"}
    run.quorum.commit(2)
    await settle()
    assert await outcomes([b, c]) == [ErrorCode.NONE] * 2
    assert run.topics == {"a", "b", "c"}
    # What is committed at once is published at once.
    assert run.deltas == [Delta(frozenset({"a"})), Delta(frozenset({"b", "c"}))]
    await run.controller.stop()


async def test_what_is_in_flight_is_seen_by_decisions_and_by_nobody_else() -> None:
    run = await Run().start()
    first, second = await run.submit(create("t"), create("t"))
    assert not run.topics
    run.quorum.commit()
    assert await outcomes([first, second]) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    await run.controller.stop()


async def test_a_command_without_records_waits_for_what_was_decided_before_it() -> None:
    run = await Run().start()
    before, unchanged = await run.submit(create("t"), create("other", validate_only=True))
    assert not unchanged.done()
    run.quorum.commit()
    await outcomes([before, unchanged])
    (alone,) = await run.submit(create("other", validate_only=True))
    assert await outcomes([alone]) == [ErrorCode.NONE]
    await run.controller.stop()


async def test_commands_beyond_those_in_flight_wait_for_their_turn() -> None:
    run = await Run().start()
    count = BATCHES_IN_FLIGHT_MAX + 3
    tasks = await run.submit(*(create(f"t{number}") for number in range(count)))
    assert not any(task.done() for task in tasks)
    for _ in range(4):
        run.quorum.commit()
        await settle()
    assert await outcomes(tasks) == [ErrorCode.NONE] * count
    assert len(run.topics) == count
    await run.controller.stop()


async def test_while_publishers_are_slow_no_images_pile_up() -> None:
    run = await Run().start()
    gate = asyncio.Event()

    async def slow(*_: object) -> None:
        await gate.wait()

    run.publishers.add(PublisherOrder.CONFIGS, slow, seen=run.controller.image)
    run.quorum.commits_at_once = True
    start = run.quorum.end_offset
    tasks = await run.submit(*(create(f"t{number}") for number in range(40)))
    # Those that are being published, those that wait to be, and the last that was let through.
    assert len(list(run.quorum.read(start, run.quorum.high_watermark))) <= (
        2 * BATCHES_IN_FLIGHT_MAX + 1
    )
    gate.set()
    assert await outcomes(tasks) == [ErrorCode.NONE] * 40
    await run.controller.stop()


async def test_who_loses_the_lead_forgets_what_is_not_committed() -> None:
    run = await Run().start()
    kept, *lost = await run.submit(create("kept"), create("lost"), create("lost-too"))
    run.quorum.commit(1)
    run.quorum.resign()
    assert await outcomes([kept, *lost]) == [ErrorCode.NONE] + [ErrorCode.NOT_CONTROLLER] * 2
    assert run.topics == {"kept"}
    assert await outcomes([run.controller.submit(create("u"))]) == [ErrorCode.NOT_CONTROLLER]
    await run.controller.stop()


async def test_who_loses_the_lead_answers_those_that_waited_for_their_turn() -> None:
    run = await Run().start()
    names = [f"t{number}" for number in range(BATCHES_IN_FLIGHT_MAX + 3)]
    tasks = await run.submit(*map(create, names))
    run.quorum.resign()
    assert await outcomes(tasks) == [ErrorCode.NOT_CONTROLLER] * len(names)
    await run.controller.stop()


async def test_who_is_elected_again_goes_on_from_what_is_committed() -> None:
    run = await Run().start()
    lost = await run.submit(create("lost"))
    run.quorum.resign()
    run.quorum.truncate()
    await outcomes(lost)
    run.quorum.elect()
    await settle()
    # The first batch of its epoch is not yet committed, so neither is all before it.
    assert await outcomes([run.controller.submit(create("early"))]) == [ErrorCode.NOT_CONTROLLER]
    run.quorum.commit()
    await settle()
    tasks = await run.submit(create("lost"))
    run.quorum.commit()
    assert await outcomes(tasks) == [ErrorCode.NONE]
    assert run.topics == {"lost"}
    assert run.controller.image.epoch == 2
    assert run.controller.image.offset + 1 == run.quorum.end_offset
    await run.controller.stop()


async def test_what_others_committed_meanwhile_is_applied_first() -> None:
    """Some of it may be what this node appended and was not told about."""
    run = await Run().start()
    told = await run.submit(create("mine-after-all"))
    run.quorum.resign()
    assert await outcomes(told) == [ErrorCode.NOT_CONTROLLER]
    run.quorum.write([TopicRecord(name="of-another", topic_id=UUID(int=9))])
    run.quorum.elect()
    await settle()
    assert not run.topics
    run.quorum.commit(2)
    await settle()
    assert run.topics == {"mine-after-all", "of-another"}
    assert run.deltas == [Delta(frozenset({"mine-after-all", "of-another"}))]
    assert await outcomes([run.controller.submit(create("u"))]) == [ErrorCode.NOT_CONTROLLER]
    run.quorum.commit()
    await settle()
    tasks = await run.submit(create("mine-after-all"), create("u"))
    run.quorum.commit()
    assert await outcomes(tasks) == [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]
    await run.controller.stop()


async def test_a_reply_that_is_committed_leaves_though_the_lead_is_lost_at_once() -> None:
    run = await Run().start()
    tasks = await run.submit(create("t"))
    run.quorum.commit()
    run.quorum.resign()
    assert await outcomes(tasks) == [ErrorCode.NONE]
    await run.controller.stop()


async def test_a_broker_epoch_is_the_offset_of_its_record_whatever_else_is_in_the_log() -> None:
    run = await Run().start()
    run.quorum.control_batch()
    offset = run.quorum.end_offset
    (registered,) = await run.submit(RegisterBroker(NodeId(1), UUID(int=2), ENDPOINTS))
    run.quorum.commit()
    assert await registered == offset
    assert run.controller.image.brokers[1].epoch == offset
    assert run.controller.image.offset == offset
    await run.controller.stop()


async def test_records_that_did_not_get_their_offsets_are_the_last_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = await Run().start()
    append = run.quorum.append

    def appended(*arguments: Any) -> Offset:
        return Offset(append(*arguments) + 1)

    monkeypatch.setattr(run.quorum, "append", appended)
    for name in ("a", "b"):
        with pytest.raises(StorageError, match="a mistake of ours"):
            await run.controller.submit(create(name))
    await run.controller.stop()


async def test_a_batch_that_could_not_be_appended_takes_those_behind_it_along() -> None:
    run = await Run().start()
    kept, *failed = await run.submit(create("kept"), create("a"), create("b"))
    run.quorum.commit(1)
    run.quorum.fail_appends(StorageError("no space"))
    assert await outcomes([kept]) == [ErrorCode.NONE]
    assert await outcomes(failed) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    tasks = await run.submit(create("a"))
    run.quorum.commit()
    assert await outcomes(tasks) == [ErrorCode.NONE]
    assert run.topics == {"kept", "a"}
    await run.controller.stop()


async def test_a_start_ends_where_what_was_committed_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waited for ever, with one line in the log."""
    run = Run()
    reads = iter((False, True))
    read = run.quorum.read

    def fails_later(start: Offset, end: Offset) -> Any:
        if next(reads):
            raise StorageError("no descriptor")
        return read(start, end)

    monkeypatch.setattr(run.quorum, "read", fails_later)
    async with asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(StorageError, match="no descriptor"):
            await run.start()
    run.controller.kill()


async def test_what_the_disk_did_not_give_is_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(controller_module, "FOLLOW_RETRY_SECONDS", 0)
    caplog.set_level(logging.ERROR)
    run = await Run().start()
    run.quorum.resign()
    run.quorum.write([TopicRecord(name="of-another", topic_id=UUID(int=9))])

    def fails(*_: Offset) -> Any:
        raise StorageError("no descriptor")

    with monkeypatch.context() as patch:
        patch.setattr(run.quorum, "read", fails)
        run.quorum.commit()
        await settle()
        assert "metadata cannot be read, will try again" in caplog.text
        assert not run.topics
    await settle()
    assert run.topics == {"of-another"}
    await run.controller.stop()


async def test_a_stop_does_not_wait_for_ever_for_what_is_never_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the disk cannot even be asked to flush."""
    monkeypatch.setattr(controller_module, "STOP_SECONDS_MAX", 0, raising=False)
    run = await Run().start()
    (waiting,) = await run.submit(create("t"))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await run.controller.stop()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_a_record_that_is_not_understood_stops_the_image_and_not_its_readers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    run = await Run().start()
    run.quorum.resign()
    image: Image = run.cache.image
    unknown = RemoveAccessControlEntryRecord(id=UUID(int=3))
    run.quorum.write([TopicRecord(name="before", topic_id=UUID(int=9)), unknown])
    run.quorum.commit()
    await settle()
    assert "metadata cannot be followed any further" in caplog.text
    assert run.cache.image is image is run.controller.image
    # Later ones are not applied either, and nobody decides on what is out of date.
    caplog.clear()
    run.quorum.write([TopicRecord(name="behind", topic_id=UUID(int=10))])
    run.quorum.elect()
    run.quorum.commit()
    await settle()
    assert run.cache.image is image
    assert await outcomes([run.controller.submit(create("t"))]) == [ErrorCode.NOT_CONTROLLER]
    assert not caplog.records
    await run.controller.stop()
