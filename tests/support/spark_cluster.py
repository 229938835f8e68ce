"""A standalone Spark cluster on loopback: a master and workers, each a process group of its own."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyspark

from headrace.spark.session import prepare
from tests.support.processes import ProcessFailed, ServerProcess, free_port, process_tree
from tests.support.spark_jobs import QUICK_JVM

HOST = "127.0.0.1"
START_SECONDS = 120
# Two workers with a core each: a stage of two tasks needs both.
EXECUTORS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.executor.extraJavaOptions": QUICK_JVM,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}


class StandaloneCluster:
    """`spark-class` for the master and each worker; executors are children of their worker."""

    def __init__(self, directory: Path, workers: int = 2) -> None:
        self._directory = directory
        self._port, self._page = free_port(HOST), free_port(HOST)
        self._wanted, self._started = workers, 0
        self._workers: list[ServerProcess] = []
        arguments = ["--host", HOST, "--port", str(self._port), "--webui-port", str(self._page)]
        self._master = self._daemon("master.Master", "master", arguments)

    @property
    def url(self) -> str:
        """What a driver is given as its master."""
        return f"spark://{HOST}:{self._port}"

    def start(self) -> None:
        """Start everything; returns when the workers have registered."""
        self._launch(self._master)
        self._master.wait_until(lambda: self._state() is not None, START_SECONDS)
        self.make_whole()

    def make_whole(self) -> None:
        """Start workers for those that were killed."""
        while len(self._workers) < self._wanted:
            self._started += 1
            name = f"worker-{self._started}"
            size = ["--cores", "1", "--memory", "1g"]
            place = ["--host", HOST, "--webui-port", "0", "--work-dir", str(self._directory / name)]
            worker = self._daemon("worker.Worker", name, [*size, *place, self.url])
            self._workers.append(worker)
            self._launch(worker)
        self._master.wait_until(lambda: self._alive() == self._wanted, START_SECONDS)

    def worker_of(self, pid: int) -> int | None:
        """The process id of the worker below which a process runs, if it is one of ours."""
        for worker in self._workers:
            if pid in process_tree(worker.pid):
                return worker.pid
        return None

    def kill_worker(self, pid: int) -> None:
        """SIGKILL for a worker, its executors and their Python processes, all at once."""
        [worker] = [each for each in self._workers if each.pid == pid]
        self._workers.remove(worker)
        for each in process_tree(pid):
            os.kill(each, signal.SIGKILL)
        worker.kill()

    def stop(self) -> None:
        """Stop workers, then the master."""
        for each in (*self._workers, self._master):
            if each.running:
                group = each.pid
                each.stop()
                _kill_group(group)  # an executor ends with its worker, or here

    def _daemon(self, kind: str, name: str, arguments: list[str]) -> ServerProcess:
        command = Path(pyspark.__file__).parent / "bin" / "spark-class"
        words = [str(command), f"org.apache.spark.deploy.{kind}", *arguments]
        return ServerProcess(name, words, self._directory / f"{name}.out")

    def _launch(self, process: ServerProcess) -> None:
        prepare()
        process.start(
            {
                "SPARK_LOCAL_IP": HOST,
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": QUICK_JVM,
                "SPARK_LAUNCHER_OPTS": QUICK_JVM,
            }
        )

    def _state(self) -> Any:
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as page:
                return json.load(page)
        except OSError:
            return None

    def _alive(self) -> int:
        state = self._state() or {"workers": []}
        return sum(1 for each in state["workers"] if each["state"] == "ALIVE")


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


@contextmanager
def standalone_cluster(directory: Path) -> Iterator[StandaloneCluster]:
    """A cluster that is gone afterwards, whatever happened."""
    cluster = StandaloneCluster(directory)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def wait_for(what: Path, seconds: float = 120) -> str:
    """The content of a file that somebody is to write."""
    deadline = time.monotonic() + seconds
    while not what.exists():
        if time.monotonic() > deadline:
            raise ProcessFailed(f"{what.name} did not come in {seconds} s")
        time.sleep(0.02)
    return what.read_text()
