"""Progress as Spark tells it, made up."""

from __future__ import annotations

from typing import Any

from headrace.spark.progress import Progress

BEGIN = 1_790_000_000.0


def told(**changes: Any) -> dict[str, Any]:
    """What Spark 4.3 says after a batch of a windowed count over one topic."""
    return {
        "id": "aaaaaaaa-0000-0000-0000-000000000001",
        "runId": "bbbbbbbb-0000-0000-0000-000000000001",
        "name": "clicks-topic",
        "timestamp": "2026-09-21T14:13:20.000Z",
        "batchId": 3,
        "batchDuration": 500,
        "numInputRows": 1000,
        "inputRowsPerSecond": 123.0,
        "processedRowsPerSecond": 2000.0,
        "durationMs": {"addBatch": 300, "triggerExecution": 500},
        "eventTime": {
            "avg": "2026-09-21T14:13:10.000Z",
            "watermark": "2026-09-21T14:12:50.000Z",
        },
        "stateOperators": [
            _operator("stateStoreSave", rows=40, size=4096),
            _operator("dedupe", rows=2, size=1024),
        ],
        "sources": [
            {
                "description": "headrace",
                "startOffset": {"clicks": {"0": 100, "1": 200}},
                "endOffset": {"clicks": {"0": 600, "1": 700}},
                "latestOffset": {"clicks": {"0": 650, "1": 1000}},
                "numInputRows": 1000,
                "inputRowsPerSecond": 123.0,
                "processedRowsPerSecond": 2000.0,
            }
        ],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
        **changes,
    }


def _operator(name: str, *, rows: int, size: int) -> dict[str, Any]:
    others = (
        *("numRowsUpdated", "numRowsRemoved", "allUpdatesTimeMs", "allRemovalsTimeMs"),
        *("commitTimeMs", "numRowsDroppedByWatermark"),
        *("numShufflePartitions", "numStateStoreInstances"),
    )
    return {
        "operatorName": name,
        "numRowsTotal": rows,
        "memoryUsedBytes": size,
        **dict.fromkeys(others, 1),
    }


def batch(number: int, *, at: float | None = None, **changes: Any) -> Progress:
    """A batch of a hundred rows that took half a second, one each second."""
    given: dict[str, Any] = {
        "query": "clicks-topic",
        "run": "first",
        "batch": number,
        "at": BEGIN + number if at is None else at,
        "rows": 100,
        "rows_per_second": 200.0,
        "batch_ms": 500,
        "lag": {"clicks": 10},
        "lag_before": {"clicks": 110},
        **changes,
    }
    return Progress(**given)
