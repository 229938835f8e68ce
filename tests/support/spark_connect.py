"""A Spark Connect server in a process of its own, for clients that have no Java."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from headrace.spark.session import prepare
from tests.support.processes import ServerProcess, accepts, free_port
from tests.support.spark_jobs import QUICK_JVM, SETTINGS

HOST = "127.0.0.1"
START_SECONDS = 120


@contextmanager
def connect_server(directory: Path, master: str = "local[2]") -> Iterator[str]:
    """The address of a server that is gone afterwards, as `sc://HOST:PORT`."""
    prepare()
    port = free_port(HOST)
    settings = SETTINGS | {
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.local.dir": str(directory / "local"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    memory = settings.pop("spark.driver.memory")
    words = [str(Path(pyspark.__file__).parent / "bin" / "spark-class")]
    words += ["org.apache.spark.deploy.SparkSubmit", "--master", master, "--driver-memory", memory]
    words += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    words += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = ServerProcess("connect", [*words, "spark-internal"], directory / "connect.out")
    server.start(
        {
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": HOST,
            "SPARK_LAUNCHER_OPTS": QUICK_JVM,
        }
    )
    try:
        server.wait_until(lambda: accepts(HOST, port), START_SECONDS)
        yield f"sc://{HOST}:{port}"
    finally:
        server.stop()
