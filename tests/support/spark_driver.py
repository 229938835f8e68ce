"""A Spark driver in a process of its own, to be killed: topic to faulty sink, batch by batch.

python -m tests.support.spark_driver '{"source": {...}, "sink": {...}, "marker": "..."}'
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from headrace.spark.session import session
from tests.support import spark_faults

QUICK_DRIVER = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def main() -> None:
    given = json.loads(sys.argv[1])
    spark = session(
        "headrace-to-be-killed",
        master="local[2]",
        settings={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": QUICK_DRIVER,
            "spark.log.level": "ERROR",
        },
    )
    spark_faults.register(spark)
    jvm = spark._jvm
    assert jvm is not None
    # This process first: the JVM takes the one that kills with it.
    pids = [os.getpid(), jvm.java.lang.ProcessHandle.current().pid()]
    spark_faults.arm(Path(given["marker"]), pids)
    rows = spark.readStream.format("headrace").options(**given["source"]).load()
    query = (
        rows.selectExpr(*given["columns"])
        .writeStream.format(spark_faults.NAME)
        .options(**given["sink"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
