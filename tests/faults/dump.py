"""Kafka's dump tool as a judge over a whole data directory, in one JVM."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.kafka_tools import DUMP_LOG, KafkaTools

METADATA = "__cluster_metadata-0"
# The tool exits 0 whatever it finds; it skips metadata records that it does not know.
_COMPLAINTS = (
    "isvalid: false",
    "invalid bytes at the end",
    "Mismatches in",
    "Exception",
    "skipping",
    "Could not",
)
_BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+)", re.MULTILINE)


def assert_kafka_finds_nothing_wrong(tools: KafkaTools, data_dir: Path) -> None:
    """Deep iteration, both indexes of every segment, metadata log and snapshots."""
    logs, indexes, metadata = [], [], []
    for directory in sorted(data_dir.iterdir()):
        if directory.name == METADATA:
            metadata += [*directory.glob("*.log"), *directory.glob("*.checkpoint")]
        elif directory.is_dir():
            logs += sorted(directory.glob("*.log"))
            indexes += sorted([*directory.glob("*.index"), *directory.glob("*.timeindex")])
    assert logs
    assert metadata
    deep, verified, decoded = tools.run_batch(
        [
            [DUMP_LOG, "--deep-iteration", "--files", _joined(logs)],
            [DUMP_LOG, "--verify-index-only", "--files", _joined(indexes)],
            [DUMP_LOG, "--cluster-metadata-decoder", "--files", _joined(metadata)],
        ],
        timeout_seconds=600,
    )
    for result in (deep, verified, decoded):
        result.checked()
        for text in (result.output, result.error):
            for complaint in _COMPLAINTS:
                assert complaint not in text, _around(text, complaint)
    dumped = re.split(r"^Dumping ", deep.output, flags=re.MULTILINE)[1:]
    assert len(dumped) == len(logs)
    for text in dumped:
        _assert_offsets_grow(text)


def _assert_offsets_grow(text: str) -> None:
    """The tool does not look: a base offset lies outside of what the CRC covers."""
    expected: int | None = None
    for base, last, _ in _BATCH.findall(text):
        assert expected is None or int(base) == expected, text[:200]
        expected = int(last) + 1


def _joined(paths: list[Path]) -> str:
    return ",".join(str(path) for path in paths)


def _around(text: str, complaint: str) -> str:
    at = text.index(complaint)
    return text[max(0, at - 500) : at + 500]
