"""/metrics of a broker under real traffic, held against what the clients know."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from tests.support.brokers import HOST, HeadraceProcess
from tests.support.config_effects import eventually
from tests.support.processes import free_port

Samples = dict[tuple[str, ...], float]


class Scraped:
    """Samples by name and label values."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, Samples] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                by_labels = self._samples.setdefault(sample.name, {})
                by_labels[tuple(sample.labels.values())] = sample.value

    def __getitem__(self, name: str) -> Samples:
        return self._samples[name]


class MeteredBroker:
    def __init__(self, directory: Path) -> None:
        self._port = free_port(HOST)
        self.process = HeadraceProcess(
            directory / "data", {"http.listener": f"{HOST}:{self._port}", "text.listener": "off"}
        )

    def answers(self) -> bool:
        """Whether the HTTP API is open; it is a moment after Kafka's."""
        try:
            return httpx.get(f"http://{HOST}:{self._port}/healthz").status_code == 200
        except httpx.ConnectError:
            return False

    def scrape(self) -> Scraped:
        answer = httpx.get(f"http://{HOST}:{self._port}/metrics", timeout=10)
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        return Scraped(answer.text)

    @property
    def servers(self) -> str:
        return self.process.bootstrap_servers


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MeteredBroker]:
    started = MeteredBroker(tmp_path)
    started.process.start()
    try:
        eventually(started.answers, "the HTTP API is open")
        yield started
    finally:
        assert started.process.stop() == 0


def make_topic(servers: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for made in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        made.result(10)


def fill(servers: str, topic: str, counts: list[int]) -> None:
    """So many records into each partition."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for partition, count in enumerate(counts):
        for number in range(count):
            producer.produce(topic, b"%010d" % number, partition=partition)
    assert producer.flush(20) == 0


def read(servers: str, topic: str, group: str, count: int) -> None:
    """Read and commit exactly so many records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    got = 0
    while got < count:
        message = consumer.poll(10)
        assert message is not None
        assert message.error() is None
        got += 1
        consumer.commit(message=message, asynchronous=False)
    consumer.close()


def test_metrics_agree_with_what_clients_have_done(broker: MeteredBroker) -> None:
    make_topic(broker.servers, "orders", 3)
    before = broker.scrape()
    assert before["headrace_topic_messages_in_total"][("orders",)] == 0
    fill(broker.servers, "orders", [100, 250, 0])
    after = broker.scrape()
    assert after["headrace_topic_messages_in_total"][("orders",)] == 350
    assert after["headrace_topic_bytes_in_total"][("orders",)] > 350 * 10
    ends = {int(p): n for (t, p), n in _of(after, "log_end_offset").items() if t == "orders"}
    assert ends == {0: 100, 1: 250, 2: 0}
    assert _of(after, "high_watermark") == _of(after, "log_end_offset")
    sizes = _of(after, "size_bytes")
    assert (
        sizes[("orders", "0")] + sizes[("orders", "1")]
        == (after["headrace_topic_bytes_in_total"][("orders",)])
    )
    assert after["headrace_request_seconds_count"][("Produce",)] >= 2
    assert after["headrace_request_seconds_sum"][("Produce",)] > 0
    assert after["headrace_flush_seconds_count"][()] >= 1
    assert after["headrace_connections"][("PLAINTEXT",)] >= 0
    assert after["process_resident_memory_bytes"][()] > 2**20
    assert after["headrace_event_loop_lag_seconds_count"][()] >= 0


def _of(scraped: Scraped, name: str) -> Samples:
    return scraped[f"headrace_partition_{name}"]


def test_the_lag_of_a_group_is_what_it_has_not_committed(broker: MeteredBroker) -> None:
    make_topic(broker.servers, "orders", 1)
    fill(broker.servers, "orders", [100])
    read(broker.servers, "orders", "billing", 30)
    consumer = Consumer({"bootstrap.servers": broker.servers, "group.id": "audit"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 95)], asynchronous=False)
    consumer.close()
    scraped = broker.scrape()
    assert scraped["headrace_group_lag"] == {
        ("billing", "orders", "0"): 70,
        ("audit", "orders", "0"): 5,
    }
    assert scraped["headrace_group_offset_commits_total"][()] == 31
    assert scraped["headrace_group_rebalances_total"][()] >= 1
    assert sum(scraped["headrace_groups"].values()) == 2
    assert scraped["headrace_topic_messages_out_total"][("orders",)] >= 30


def test_rebalances_of_both_protocols_are_counted(broker: MeteredBroker) -> None:
    make_topic(broker.servers, "orders", 2)
    counts = []
    for protocol in ("classic", "consumer"):
        consumer = Consumer(
            {
                "bootstrap.servers": broker.servers,
                "group.id": protocol,
                "group.protocol": protocol,
            }
        )
        consumer.subscribe(["orders"])
        for _ in range(100):
            consumer.poll(0.1)
            if len(consumer.assignment()) == 2:
                break
        counts.append(broker.scrape()["headrace_group_rebalances_total"][()])
        consumer.close()
    assert 0 < counts[0] < counts[1]


def test_errors_are_counted_by_name(broker: MeteredBroker) -> None:
    make_topic(broker.servers, "orders", 1)
    admin = AdminClient({"bootstrap.servers": broker.servers})
    [again] = admin.create_topics([NewTopic("orders", 1, 1)]).values()
    with pytest.raises(Exception) as refused:  # noqa: PT011 - looked at below
        again.result(10)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    errors = broker.scrape()["headrace_request_errors_total"]
    assert errors[("CreateTopics", "TOPIC_ALREADY_EXISTS")] == 1
