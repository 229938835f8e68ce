"""Shards live where their partition is led: elections, resignations, and what fails."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from headrace.coordinator import loading, shards
from headrace.coordinator.loading import load
from headrace.core.errors import ApiError, ErrorCode, StorageError
from headrace.core.ids import LeaderEpoch, TopicPartition
from headrace.log.partition_log import PartitionLog
from headrace.metadata.delta import Delta
from headrace.metadata.image import Image, Topic
from headrace.protocol.records.decode import Record
from headrace.protocol.records.encode import encode_batch
from tests.support.coordinator import RegisterCoordinator, Registers

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOWHERE = ErrorCode.NOT_COORDINATOR
WAIT = ErrorCode.COORDINATOR_NOT_AVAILABLE
NONE = ErrorCode.NONE


@pytest_asyncio.fixture
async def node(tmp_path: Path) -> AsyncIterator[RegisterCoordinator]:
    node = RegisterCoordinator(tmp_path)
    yield node
    await node.close()


async def turn() -> None:
    """Let the loop come round."""
    await asyncio.sleep(0)


def raise_no_space(*_: object) -> None:
    raise StorageError("no space")


# Elections


async def test_a_partition_that_is_not_led_here_has_no_coordinator_though_its_log_is_empty(
    node: RegisterCoordinator,
) -> None:
    assert node.refusal() is NOWHERE
    assert node.shards == []
    node.elect(3)
    assert node.refusal() is NONE
    node.resign(3)
    assert node.refusal() is NOWHERE


async def test_a_resignation_ends_every_wait_and_the_next_leader_finds_what_is_in_the_log(
    node: RegisterCoordinator,
) -> None:
    node.elect(1)
    node.put("a")
    await turn()
    node.led.flush()
    node.put("b")
    await turn()  # in the log, not committed
    node.put("c")  # decided, not in the log
    node.park("parked")
    node.resign(1)
    assert node.heard == [("a", NONE), ("b", NOWHERE), ("c", NOWHERE), ("parked", NOWHERE)]
    assert node.refusal() is NOWHERE
    await turn()
    node.led.flush()
    assert len(node.heard) == 4, "an answer of a shard that is gone"
    assert node.led.batches() == [1, 1]
    node.elect(4)
    assert node.refusal() is LOADING
    assert (await node.ready()).texts == {"k": "b"}
    node.put("d")
    await turn()
    node.led.flush()
    assert node.heard[-1] == ("d", NONE)
    assert node.led.batches() == [1, 1, 1]


async def test_a_resignation_with_commits_under_way_is_no_failure(
    node: RegisterCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    node.elect(1)
    node.put("a")
    await turn()  # in the log, not committed
    node.resign(1)
    assert node.heard == [("a", NOWHERE)]
    assert [record.getMessage() for record in caplog.records] == []


async def test_a_shard_that_is_resigned_while_it_is_loaded_is_not_there_afterwards(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "RECORDS_PER_SLICE", 1)
    node.led.append(batch("a", "b", "c", "d"))
    node.elect(1)
    await turn()
    await turn()
    assert 0 < len(node.shards[0].producers) < 4
    assert node.refusal() is LOADING
    node.resign(1)
    assert node.refusal() is NOWHERE
    for _ in range(10):
        await turn()
    assert node.refusal() is NOWHERE
    assert len(node.shards[0].producers) < 4, "it was read to the end for nobody"


async def test_a_load_of_an_older_epoch_is_not_taken_for_that_of_the_newer(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "RECORDS_PER_SLICE", 1)
    node.led.append(batch("a", "b", "c", "d"))
    node.elect(1)
    await turn()
    await turn()
    node.resign(1)
    node.led.append(batch("of another leader"))
    node.elect(3)
    for _ in range(20):  # nobody asks for it
        await turn()
    assert node.refusal() is NONE
    assert len(node.shards) == 2
    assert node.shards[1].texts == {"k": "of another leader"}


async def test_an_election_that_is_heard_of_twice_changes_nothing(
    node: RegisterCoordinator,
) -> None:
    node.elect(1)
    node.put("a")
    node.elect(1)
    await turn()
    node.led.flush()
    assert node.heard == [("a", NONE)]
    assert len(node.shards) == 1


async def test_in_a_higher_epoch_the_shard_is_read_anew_also_where_nobody_else_led(
    node: RegisterCoordinator,
) -> None:
    node.elect(1)
    node.put("a")
    await turn()
    node.put("not written")
    node.park("parked")
    node.elect(2)
    assert node.heard == [("a", NOWHERE), ("not written", NOWHERE), ("parked", NOWHERE)]
    assert (await node.ready()).texts == {"k": "a"}


async def test_news_of_an_older_epoch_are_no_news(node: RegisterCoordinator) -> None:
    node.elect(5)
    node.resign(4)
    assert node.refusal() is NONE
    node.runtime.on_elected(TopicPartition("__registers", 0), LeaderEpoch(3))
    assert (node.refusal(), len(node.shards)) == (NONE, 1)


async def test_elections_of_other_topics_are_not_for_this_coordinator(
    node: RegisterCoordinator,
) -> None:
    node.runtime.on_elected(TopicPartition("t", 0), LeaderEpoch(3))
    assert node.refusal() is NOWHERE


async def test_who_asks_for_a_partition_that_is_offline_shall_ask_again(
    node: RegisterCoordinator,
) -> None:
    node.elect(1)
    node.replicas.partitions.clear()
    node.replicas.offline.add(0)
    node.resign(1)
    assert node.refusal() is WAIT


async def test_timers_of_a_shard_end_with_it(node: RegisterCoordinator) -> None:
    node.elect(1)

    def schedule(key: str) -> None:
        now_ms = int(node.clock.monotonic_ms())
        node.runtime.write("k", lambda _, result: result.schedule(key, now_ms + 5))

    schedule("of the first")
    node.elect(2)
    second = await node.ready()
    schedule("of the second")
    async with asyncio.timeout(20):
        while not second.timers:
            await asyncio.sleep(0.001)
    assert [shard.timers for shard in node.shards] == [[], ["of the second"]]


# Reads


async def test_a_read_waits_for_what_it_rests_on(node: RegisterCoordinator) -> None:
    node.elect(1)
    node.put("a")
    found: list[str | ApiError] = []
    node.runtime.read("k", lambda shard: shard.texts["k"], found.append)
    await turn()
    assert found == []
    node.led.flush()
    assert found == ["a"]


@pytest.mark.parametrize("how", ["resigned", "failed"])
async def test_a_read_of_what_will_not_be_committed_is_refused(
    node: RegisterCoordinator, how: str
) -> None:
    node.elect(1)
    node.put("a")
    found: list[list[str]] = []
    read_one(node, found.append)
    everything: list[Any] = []
    node.runtime.read_all(lambda shard: shard.texts, everything.append)
    await turn()
    if how == "resigned":
        node.resign(1)
    else:
        node.led.partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
    assert found == [["k refused: NOT_COORDINATOR"]]
    assert [each.code for each in everything] == [LOADING]


def read_one(node: RegisterCoordinator, reply: Callable[[list[str]], None]) -> None:
    node.runtime.read_each(
        [("k", lambda shard: shard.texts["k"])],
        lambda key, error: f"{key} refused: {error.code.name}",
        reply,
    )


async def test_of_several_one_that_has_no_coordinator_is_a_value_among_the_others(
    node: RegisterCoordinator,
) -> None:
    found: list[list[str]] = []
    read_one(node, found.append)
    assert found == [["k refused: NOT_COORDINATOR"]]
    node.runtime.read_each([], lambda *_: "", found.append)
    assert found[-1] == []


async def test_while_shards_are_loaded_nobody_is_told_of_all(node: RegisterCoordinator) -> None:
    node.led.append(batch("a"))
    node.elect(1)
    with pytest.raises(ApiError) as refused:
        node.runtime.read_all(lambda shard: shard.texts, lambda _: None)
    assert refused.value.code is LOADING
    await node.ready()
    found: list[Any] = []
    node.runtime.read_all(lambda shard: shard.texts, found.append)
    node.led.flush()
    assert found == [[{"k": "a"}]]


# Failures


async def test_a_shard_whose_log_did_not_take_a_record_is_read_anew(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.elect(1)
    node.put("a")
    await turn()
    node.led.flush()

    def broken(*_: object) -> None:
        raise StorageError("no space")

    with monkeypatch.context() as patched:
        patched.setattr(PartitionLog, "append", broken)
        node.put("b")
        node.park("parked")
        await turn()
    assert node.heard[1:] == [("b", NOWHERE), ("parked", NOWHERE)]
    assert (await node.ready()).texts == {"k": "a"}


async def test_while_a_shard_that_was_thrown_away_is_not_read_anew_nobody_is_told_of_all(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its groups would seem to be gone for as long as its log is left in peace."""
    node.elect(1)
    node.put("a")
    await turn()
    node.led.flush()

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append", raise_no_space)
        node.put("b")
        await turn()
    with pytest.raises(ApiError) as refused:
        node.runtime.read_all(lambda shard: shard.texts, lambda _: None)
    assert refused.value.code is LOADING
    await node.ready()
    found: list[Any] = []
    node.runtime.read_all(lambda shard: shard.texts, found.append)
    assert found == [[{"k": "a"}]]


async def test_a_shard_that_was_thrown_away_and_resigned_holds_up_nobody(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.elect(1)
    monkeypatch.setattr(PartitionLog, "append", raise_no_space)
    node.put("a")
    await turn()
    node.resign(1)
    found: list[Any] = []
    node.runtime.read_all(lambda shard: shard.texts, found.append)
    assert found == [[]]


async def test_a_decision_that_fails_half_way_costs_its_shard_and_not_what_was_decided_before(
    node: RegisterCoordinator,
) -> None:
    node.elect(1)
    node.put("a")
    asking = node.reply("asking")

    def half(shard: Registers, result: Any) -> None:
        shard.put("k", "half", node.reply("other"), result)
        result.reply(asking, None)
        raise ZeroDivisionError("a fault nobody thought of")

    with pytest.raises(ZeroDivisionError):
        node.runtime.write("k", half, asking)
    assert node.heard == [("other", WAIT)], "whoever asks is told by what was raised"
    assert (await node.ready()).texts == {"k": "a"}
    node.led.flush()
    assert node.heard[-1] == ("a", NONE)


@pytest.mark.parametrize("when", ["at once", "later"])
async def test_who_waits_in_a_shard_is_told_once_that_it_is_gone(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A decision fails half way, and the log does not take or keep what was decided before it."""
    node.elect(1)
    node.park("parked")
    node.put("a")
    asking = node.reply("asking")

    def half(shard: Registers, result: Any) -> None:
        shard.parked.append(asking)
        shard.put("k", "half", asking, result)
        raise ZeroDivisionError

    def broken(*_: object) -> None:
        raise StorageError("no space")

    if when == "at once":
        monkeypatch.setattr(PartitionLog, "append", broken)
    with pytest.raises(ZeroDivisionError):
        node.runtime.write("k", half, asking)
    node.led.partition.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
    assert sorted(node.heard) == [("a", NOWHERE), ("parked", NOWHERE)]


async def test_what_is_refused_before_anything_is_decided_changes_nothing(
    node: RegisterCoordinator,
) -> None:
    node.elect(1)

    def refuse(*_: object) -> None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)

    with pytest.raises(ApiError):
        node.runtime.write("k", refuse)
    assert (node.refusal(), len(node.shards)) == (NONE, 1)


async def test_a_shard_that_cannot_be_read_is_tried_again_until_it_resigns(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(shards, "RETRY_PAUSES", 0)
    node.led.append(batch("a"))
    attempts: list[int] = []
    tried = asyncio.Event()

    async def damaged(*_: object) -> bool:
        attempts.append(1)
        if len(attempts) == 3:
            tried.set()
        raise OSError("damaged")

    with monkeypatch.context() as patched:
        patched.setattr(shards, "load", damaged)
        node.elect(1)
        await tried.wait()
        assert node.refusal() is WAIT
        node.resign(1)
        for _ in range(5):
            await asyncio.sleep(0.001)
        assert len(attempts) == 3
        assert node.refusal() is NOWHERE
    node.elect(2)
    assert (await node.ready()).texts == {"k": "a"}


async def test_a_disk_that_has_to_be_waited_for_holds_up_no_election(
    node: RegisterCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shard is resigned while a worker brings its log in."""
    node.led.append(batch("a"))
    waiting, go_on = asyncio.Event(), asyncio.Event()

    async def cold(*arguments: Any) -> bool:
        waiting.set()
        await go_on.wait()
        return await load(*arguments)

    monkeypatch.setattr(shards, "load", cold)
    node.elect(1)
    await waiting.wait()
    node.resign(1)
    node.elect(2)
    assert node.refusal() is LOADING
    go_on.set()
    assert (await node.ready()) is node.shards[1]
    assert [shard.texts for shard in node.shards] == [{}, {"k": "a"}]


# Records


async def test_a_change_of_the_cluster_comes_in_pieces(node: RegisterCoordinator) -> None:
    node.elect(1)
    await node.ready()
    names = ("a", "b", "c")
    image = Image(
        "cluster", topics={name: Topic(name, node.led.partition.topic_id, ()) for name in names}
    )
    publishing = asyncio.ensure_future(
        node.runtime.publish(Image("cluster"), image, Delta(topics=frozenset(names)))
    )
    await turn()
    assert node.shards[0].texts == {"topic": "a"}, "others have their turn"
    await publishing
    assert node.shards[0].texts == {"topic": "c"}


def batch(*texts: str) -> bytearray:
    return encode_batch(Record(place, 1, b"k", text.encode()) for place, text in enumerate(texts))
