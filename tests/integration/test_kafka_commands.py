"""Kafka's own command-line tools against a broker process, in one JVM."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from tests.support.brokers import BrokerProcess
from tests.support.groups import required
from tests.support.kafka_tools import KafkaTools, ToolResult

_TOOLS = "org.apache.kafka.tools"


class Run:
    """The outcome of one batch of commands, by a name for each."""

    def __init__(self, topic: str, results: dict[str, ToolResult]) -> None:
        self.topic = topic
        self._results = results

    def output(self, name: str) -> str:
        return self._results[name].checked()

    def result(self, name: str) -> ToolResult:
        return self._results[name]


@pytest.fixture(scope="module")
def run(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Everything is asked once, in this order; the tests look at the answers."""
    topic = f"commands-{uuid.uuid4().hex[:8]}"
    cut: Path = tmp_path_factory.mktemp("commands") / "cut.json"
    offsets = [{"topic": topic, "partition": 0, "offset": 40}]
    cut.write_text(json.dumps({"version": 1, "partitions": offsets}))
    server = ("--bootstrap-server", broker.bootstrap_servers)
    a_topic = ("--topic", topic)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    brokers = ("--entity-type", "brokers", "--entity-default")
    commands: dict[str, list[str]] = {
        "create": [
            f"{_TOOLS}.TopicCommand", *server, "--create", *a_topic, "--partitions", "2",
            "--replication-factor", "1", "--config", "segment.bytes=1048576",
        ],
        "create again": [f"{_TOOLS}.TopicCommand", *server, "--create", *a_topic],
        "describe": [f"{_TOOLS}.TopicCommand", *server, "--describe", *a_topic],
        "list": [f"{_TOOLS}.TopicCommand", *server, "--list"],
        "grow": [f"{_TOOLS}.TopicCommand", *server, "--alter", *a_topic, "--partitions", "3"],
        "set": [
            "kafka.admin.ConfigCommand", *server, "--alter", *entity,
            "--add-config", "retention.ms=600000",
        ],
        "show": ["kafka.admin.ConfigCommand", *server, "--describe", *entity],
        "unset": [
            "kafka.admin.ConfigCommand", *server, "--alter", *entity,
            "--delete-config", "retention.ms",
        ],
        "bad value": [
            "kafka.admin.ConfigCommand", *server, "--alter", *entity,
            "--add-config", "retention.ms=soon",
        ],
        "set for all brokers": [
            "kafka.admin.ConfigCommand", *server, "--alter", *brokers,
            "--add-config", "log.cleaner.backoff.ms=12345",
        ],
        "show of all brokers": ["kafka.admin.ConfigCommand", *server, "--describe", *brokers],
        "load": [
            f"{_TOOLS}.ProducerPerformance", *server, *a_topic, "--num-records", "3000",
            "--record-size", "100", "--throughput", "-1", "--command-property", "acks=all",
        ],
        "offsets": [f"{_TOOLS}.GetOffsetShell", *server, *a_topic],
        "delete records": [
            f"{_TOOLS}.DeleteRecordsCommand", *server, "--offset-json-file", str(cut),
        ],
        "earliest": [f"{_TOOLS}.GetOffsetShell", *server, *a_topic, "--time", "earliest"],
        "consume": [
            f"{_TOOLS}.consumer.ConsoleConsumer", *server, *a_topic, "--partition", "0",
            "--offset", "41", "--max-messages", "2", "--formatter-property", "print.offset=true",
            "--timeout-ms", "30000",
        ],
        "versions": [f"{_TOOLS}.BrokerApiVersionsCommand", *server],
        "log dirs": [f"{_TOOLS}.LogDirsCommand", *server, "--describe", "--topic-list", topic],
        "delete": [f"{_TOOLS}.TopicCommand", *server, "--delete", *a_topic],
    }  # fmt: skip
    results = required(KafkaTools).run_batch(list(commands.values()))
    return Run(topic, dict(zip(commands, results, strict=True)))


pytestmark = pytest.mark.xdist_group("kafka-commands")


def test_topics_are_created_listed_described_and_deleted(run: Run) -> None:
    assert f"Created topic {run.topic}" in run.output("create")
    assert run.topic in run.output("list").split()
    described = run.output("describe")
    assert "PartitionCount: 2" in described
    assert "segment.bytes=1048576" in described
    assert described.count("Leader: 0") == 2
    run.output("grow")
    run.output("delete")


def test_a_topic_cannot_be_created_twice(run: Run) -> None:
    result = run.result("create again")
    assert result.exit_code == 1
    assert f"Topic '{run.topic}' already exists." in result.output + result.error


def test_configs_are_set_shown_and_taken_back(run: Run) -> None:
    assert f"Completed updating config for topic {run.topic}" in run.output("set")
    assert "retention.ms=600000" in run.output("show")
    run.output("unset")
    assert "default config for brokers" in run.output("set for all brokers")
    assert "log.cleaner.backoff.ms=12345" in run.output("show of all brokers")
    result = run.result("bad value")
    assert result.exit_code == 1
    assert "Invalid value soon for configuration retention.ms" in result.output + result.error


def test_records_are_produced_under_load(run: Run) -> None:
    assert "3000 records sent" in run.output("load")


def test_offsets_are_told_for_all_partitions(run: Run) -> None:
    ends = dict(line.rsplit(":", 1) for line in run.output("offsets").split())
    assert sum(int(end) for end in ends.values()) == 3000
    assert len(ends) == 3


def test_deleted_records_move_the_start_and_reading_goes_on_behind(run: Run) -> None:
    assert "low_watermark: 40" in run.output("delete records")
    assert f"{run.topic}:0:40" in run.output("earliest").split()
    assert [line.split()[0] for line in run.output("consume").splitlines()[:2]] == [
        "Offset:41",
        "Offset:42",
    ]


def test_the_broker_tells_its_versions(run: Run) -> None:
    told = run.output("versions")
    assert "Produce(0): 0 to 13 [usable: 13]" in told
    assert "Fetch(1): 4 to 18 [usable: 18]" in told


def test_the_log_directory_is_described(run: Run) -> None:
    text = run.output("log dirs")
    found = json.loads(next(line for line in text.splitlines() if line.startswith("{")))
    partitions = found["brokers"][0]["logDirs"][0]["partitions"]
    assert {each["partition"].rsplit("-", 1)[1] for each in partitions} == {"0", "1", "2"}
    assert sum(each["size"] for each in partitions) > 300_000
