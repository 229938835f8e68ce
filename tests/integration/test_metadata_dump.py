"""Kafka's own dump tool reads the metadata log and its snapshots, whatever happened to them."""

import json
import re
from pathlib import Path

import pytest

from headrace.controller.commands import (
    AllocateProducerIds,
    AlterConfigOp,
    ConfigsToAlter,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    IncrementalAlterConfigs,
    NewPartitions,
    TopicToCreate,
    TopicToDelete,
)
from headrace.core.config_resources import ConfigResourceType
from headrace.log.real_files import RealFileSystem
from headrace.metadata.image import Image
from tests.support.groups import required
from tests.support.kafka_tools import DUMP_LOG, KafkaTools
from tests.support.metadata import NODE, MetadataNode

pytestmark = pytest.mark.xdist_group("kafka")

_OFFSETS = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+)", re.MULTILINE)
_WRONG = ("isvalid: false", "invalid bytes at the end", "Mismatches in", "skipping", "Exception")


async def _live(data: Path, life: int, *, kill: bool, snapshot_records_min: int) -> Image:
    """One life of a node that writes every kind of record; returns its last image."""
    files = RealFileSystem()
    node = MetadataNode(files, data=str(data), seed=life, snapshot_records_min=snapshot_records_min)
    await node.join()
    submit = node.controller.submit
    configs = (("cleanup.policy", "compact"), ("retention.ms", "60000"))
    await submit(CreateTopics((TopicToCreate(f"kept{life}", 5, 1, configs=configs),)))
    await submit(CreateTopics((TopicToCreate(f"gone{life}", 2, 1),)))
    await submit(CreatePartitions((NewPartitions(f"kept{life}", 7),)))
    drop = ConfigsToAlter(
        ConfigResourceType.TOPIC, f"kept{life}", (AlterConfigOp("retention.ms", 1),)
    )
    default = ConfigsToAlter(
        ConfigResourceType.BROKER, "", (AlterConfigOp("log.retention.ms", 0, "5000"),)
    )
    await submit(IncrementalAlterConfigs((drop, default)))
    await submit(DeleteTopics((TopicToDelete(f"gone{life}"),)))
    await submit(AllocateProducerIds(NODE))
    if kill:
        node.kill()
    else:
        await node.stop()
    files.close()
    return node.image


def _payloads(output: str) -> list[str]:
    kinds = [json.loads(line)["type"] for line in re.findall(r"payload: (\{.*\})", output)]
    control = re.findall(r"(LeaderChange|SnapshotHeader|SnapshotFooter)", output)
    return kinds + control


async def test_kafka_reads_the_metadata_log_after_stops_and_kills(tmp_path: Path) -> None:
    tools = required(KafkaTools)
    for life, kill in enumerate((False, True, True, False)):
        image = await _live(tmp_path / "d", life, kill=kill, snapshot_records_min=1_000_000)
    (log,) = (tmp_path / "d" / "__cluster_metadata-0").glob("*.log")
    output = tools.run(DUMP_LOG, "--cluster-metadata-decoder", "--files", str(log)).checked()
    for wrong in _WRONG:
        assert wrong not in output
    batches = [tuple(map(int, found)) for found in _OFFSETS.findall(output)]
    expected = 0
    for base, last, count in batches:
        assert (base, count) == (expected, last - base + 1)
        expected = last + 1
    assert expected == image.offset + 1
    kinds = _payloads(output)
    assert len(kinds) == expected
    assert kinds.count("LeaderChange") == kinds.count("REGISTER_BROKER_RECORD") == 4
    assert set(kinds) == {
        "LeaderChange",
        "FEATURE_LEVEL_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "CONFIG_RECORD",
        "PARTITION_RECORD",
        "PARTITION_CHANGE_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PRODUCER_IDS_RECORD",
    }


async def test_kafka_reads_the_snapshots(tmp_path: Path) -> None:
    tools = required(KafkaTools)
    for life in range(3):
        image = await _live(tmp_path / "d", life, kill=life == 1, snapshot_records_min=1)
    directory = tmp_path / "d" / "__cluster_metadata-0"
    snapshots = sorted(directory.glob("*.checkpoint"))
    assert len(snapshots) == 2
    logs = sorted(directory.glob("*.log"))
    assert f"{snapshots[0].name.partition('-')[0]}.log" == logs[0].name
    files = ",".join(str(path) for path in (*snapshots, *logs))
    output = tools.run(DUMP_LOG, "--cluster-metadata-decoder", "--files", files).checked()
    for wrong in _WRONG:
        assert wrong not in output
    assert output.count("SnapshotHeader") == output.count("SnapshotFooter") == 2
    # The topics of the first life are only in the snapshots, with all that belongs to them.
    of_snapshot = _payloads(output.split("SnapshotFooter")[1])
    assert of_snapshot.count("TOPIC_RECORD") >= 2
    assert of_snapshot.count("PARTITION_RECORD") == 7 * of_snapshot.count("TOPIC_RECORD")
    assert of_snapshot.count("FEATURE_LEVEL_RECORD") == len(image.features)
    assert of_snapshot.count("REGISTER_BROKER_RECORD") == len(image.brokers)
    assert "CONFIG_RECORD" in of_snapshot
    assert "PRODUCER_IDS_RECORD" in of_snapshot
