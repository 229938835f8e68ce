"""A stream that is watched, in a session of its own, over what a topic has now.

python -m tests.support.spark_watched MASTER SERVERS TOPIC REPORT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from headrace.spark.progress import watch
from headrace.spark.session import session


def main() -> None:
    master, servers, topic, report = sys.argv[1:]
    spark = session("headrace-watched", master=master)
    with watch(spark, names={"watched"}, report=Path(report)):
        query = (
            spark.readStream.format("headrace")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", json.dumps({topic: {"0": 0}}))
            .option("maxOffsetsPerTrigger", 100)
            .load()
            .writeStream.format("noop")
            .queryName("watched")
            .option("checkpointLocation", str(Path(report).with_suffix(".checkpoint")))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
