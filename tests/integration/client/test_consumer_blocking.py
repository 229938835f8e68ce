"""The blocking consumer: the same group, from ordinary threads."""

import threading
import time
import uuid
from collections.abc import Callable

import pytest

from headrace.client import Client, ClientClosed, CommitFailed, Consumer, TopicPartition
from tests.integration.client.members import PATIENCE_SECONDS, SESSION_MS, new_settings
from tests.support.topics import Topics


@pytest.fixture(params=["cooperative", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    chosen: str = request.param
    return chosen


@pytest.fixture
def filled(topics: Topics, client: Client) -> Callable[[int, int], str]:
    """Makes a topic with so many partitions and records."""

    def make(partitions: int, records: int) -> str:
        topic = topics.create(f"blocking-{uuid.uuid4().hex[:8]}", partitions=partitions)
        with client.producer() as producer:
            for number in range(records):
                producer.send(topic, str(number).encode())
        return topic

    return make


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline


def test_two_threads_share_a_topic(
    client: Client, filled: Callable[[int, int], str], protocol: str
) -> None:
    topic = filled(4, 2_000)
    settings = new_settings(protocol, auto_commit=True)
    found: list[bytes | None] = []
    done = threading.Event()

    def work(consumer: Consumer) -> None:
        with consumer:
            consumer.subscribe([topic])
            while not done.is_set():
                for records in consumer.poll(50).values():
                    found.extend(record.value for record in records)
                if len(set(found)) == 2_000:
                    done.set()

    threads = [threading.Thread(target=work, args=[client.consumer(settings)]) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert len(set(found)) == 2_000
    assert sum(each.lag or 0 for each in client.admin.group_lag(settings.group_id)) == 0


def test_a_loop_that_breaks_off_commits_only_what_it_has_seen(
    client: Client, filled: Callable[[int, int], str], protocol: str
) -> None:
    topic = filled(1, 100)
    where = TopicPartition(topic, 0)
    settings = new_settings(protocol)
    with client.consumer(settings) as consumer:
        consumer.subscribe([topic])
        for record in consumer:
            if record.offset == 41:
                break
        assert consumer.position(where) == 42
        consumer.commit()
        assert consumer.committed()[where].offset == 42
        assert next(consumer).offset == 42
        [records] = consumer.poll().values()
        assert records[0].offset == 43, "what iteration took ahead is not lost to a poll"
        consumer.seek(where, 7)
        assert next(consumer).offset == 7
        consumer.pause(where)
        assert consumer.poll(100) == {}
        consumer.resume(where)
        assert next(consumer).offset == 8
    assert client.admin.committed_offsets(settings.group_id)[where].offset == 42


def test_closing_commits_automatically_only_what_a_loop_has_seen(
    client: Client, filled: Callable[[int, int], str], protocol: str
) -> None:
    topic = filled(1, 100)
    settings = new_settings(protocol, auto_commit=True)
    with client.consumer(settings) as consumer:
        consumer.subscribe([topic])
        while next(consumer).offset != 41:
            pass
    committed = client.admin.committed_offsets(settings.group_id)
    assert committed[TopicPartition(topic, 0)].offset == 42


def test_listeners_run_in_the_thread_that_polls_and_may_use_the_consumer(
    client: Client, filled: Callable[[int, int], str], protocol: str
) -> None:
    topic = filled(2, 10)
    settings = new_settings(protocol)
    told: list[tuple[str, int, str]] = []

    def note(what: str) -> Callable[[list[TopicPartition]], None]:
        def listener(partitions: list[TopicPartition]) -> None:
            if partitions:
                told.append((what, len(partitions), threading.current_thread().name))
                consumer.commit()

        return listener

    consumer = client.consumer(settings)
    consumer.subscribe([topic], on_assigned=note("assigned"), on_revoked=note("revoked"))
    until(lambda: bool(consumer.poll(100)))
    consumer.close()
    here = threading.current_thread().name
    assert told == [("assigned", 2, here), ("revoked", 2, here)]
    committed = client.admin.committed_offsets(settings.group_id)
    assert sum(place.offset for place in committed.values()) == 10


def test_a_program_may_work_longer_than_a_session_but_not_than_the_poll_interval(
    client: Client, filled: Callable[[int, int], str], protocol: str
) -> None:
    topic = filled(1, 10)
    settings = new_settings(protocol, max_poll_interval_ms=SESSION_MS * 2)
    with client.consumer(settings) as consumer:
        consumer.subscribe([topic])
        until(lambda: bool(consumer.poll(100)))
        begun = time.monotonic()

        def members() -> int:
            described = client.admin.describe_groups([settings.group_id])
            return len(described[settings.group_id].members)

        until(lambda: members() == 0)
        assert time.monotonic() - begun >= SESSION_MS * 2 / 1000 - 0.1
        with pytest.raises(CommitFailed):
            consumer.commit()
        until(lambda: bool(consumer.poll(100)))
        consumer.commit()


def test_a_closed_consumer_says_so(
    client: Client, filled: Callable[[int, int], str], protocol: str
) -> None:
    consumer = client.consumer(new_settings(protocol))
    consumer.subscribe([filled(1, 0)])
    consumer.close()
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll()
    with pytest.raises(ClientClosed):
        next(consumer)


def test_a_poll_that_can_never_return_anything_says_so(client: Client) -> None:
    with client.consumer("idle") as consumer:
        with pytest.raises(ValueError, match=r"subscribe\(\) to topics or assign\(\)"):
            consumer.poll(0)
        consumer.assign([])
        assert consumer.poll(0) == {}
