"""`Broker`: a real broker in this process, started and stopped in milliseconds."""

import asyncio
import errno
import os
import random
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self

from headrace.testing.loop_thread import LoopThread

if TYPE_CHECKING:
    from headrace.log.real_files import RealFileSystem
    from headrace.node.node import Node
    from headrace.node.system import ThreadExecutor

HOST = "127.0.0.1"
# Below the range from which the kernel takes ports for outgoing connections: otherwise some
# client's socket could sit on our port while the broker is down.
PORTS = range(15_000, 32_000)
START_SECONDS = 30.0
STOP_SECONDS = 30.0

ConfigValue = str | bool | int | float


class Broker:
    """One broker with its own port and temporary directory; a context manager, sync or async.

    Fast by default: nothing waits for the disk, and the first member of a group does not wait for
    others. `durable=True` is the production setting, where acks=all means on disk. `settings` are
    broker configs by Kafka's names. With `data_dir` the data is kept there and outlives the
    broker. With `http` it also serves HTTP at `http_url`, with `text` the text listener at
    `text_address`.

    Port and data are the broker's until the context ends (or `close`, where there is no context),
    however often it is stopped, killed and started meanwhile.
    """

    def __init__(
        self,
        *,
        settings: Mapping[str, ConfigValue] | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        durable: bool = False,
        port: int | None = None,
        http: bool = False,
        text: bool = False,
    ) -> None:
        self._settings = _as_text(settings)
        self._http = http
        self._http_port: int | None = None
        self._text = text
        self._text_port: int | None = None
        self._durable = durable
        self._wanted_port = port
        self._port = port
        self._kept_dir = None if data_dir is None else os.fspath(data_dir)
        self._data_dir: str | None = None
        self._remove_data: Callable[[], object] | None = None
        self._outage: str | None = None
        self._thread: LoopThread | None = None
        self._node: Node | None = None
        self._executor: ThreadExecutor | None = None
        self._files: RealFileSystem | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as every Kafka client wants it."""
        return f"{HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port; stays the same over restarts."""
        if self._port is None:
            raise RuntimeError("the broker has not been started: use `with Broker() as broker`")
        return self._port

    @property
    def http_url(self) -> str:
        """`http://host:port` of the HTTP API, with `http=True`; the same over restarts."""
        if self._http_port is None:
            raise RuntimeError("there is no HTTP API: use `with Broker(http=True) as broker`")
        return f"http://{HOST}:{self._http_port}"

    @property
    def text_address(self) -> tuple[str, int]:
        """Host and port of the text listener, with `text=True`; the same over restarts."""
        if self._text_port is None:
            raise RuntimeError("there is no text listener: use `with Broker(text=True) as broker`")
        return HOST, self._text_port

    @property
    def data_dir(self) -> str:
        """The directory with the broker's data."""
        if self._data_dir is None:
            raise RuntimeError("the broker has not been started: use `with Broker() as broker`")
        return self._data_dir

    @property
    def is_running(self) -> bool:
        return self._node is not None

    @property
    def outage(self) -> str | None:
        """What was done to a broker that does not answer, and in which test; else None."""
        return self._outage

    def start(self) -> None:
        """Return when the broker serves; a second call does nothing."""
        if self._node is not None:
            return
        if self._data_dir is None:
            self._data_dir = self._kept_dir or self._temporary_directory()
        attempts = 1 if self._port is not None else 20
        for attempt in range(attempts):
            port = self._port if self._port is not None else free_port()
            try:
                self._start_on(port)
                return
            except OSError as error:
                # Another process took the port between our look and our bind.
                if error.errno != errno.EADDRINUSE or attempt == attempts - 1:
                    raise

    def stop(self) -> None:
        """Stop cleanly; `start` goes on with the same port and data."""
        if self._node is not None:
            self._stop_node()
            self._outage = _outage_in_test("stopped")

    def close(self) -> None:
        """Stop cleanly, give up the port and remove the temporary directory."""
        try:
            self._stop_node()
        finally:
            if self._remove_data is not None:
                self._remove_data()
                self._remove_data = None
            self._data_dir = self._outage = None
            self._port = self._wanted_port
            self._http_port = self._text_port = None

    def kill(self) -> None:
        """Drop everything as SIGKILL would; `start` or `restart` brings it back on its data."""
        if self._node is None or self._thread is None:
            return
        self._thread.resume()
        self._thread.call(self._node.kill, STOP_SECONDS)
        self._discard_node()
        self._outage = _outage_in_test("killed")

    def restart(self) -> None:
        """Stop cleanly (unless killed before) and start again on the same port and data."""
        self._stop_node()
        self.start()

    def pause(self) -> None:
        """Freeze the broker: connections stay open, nothing is answered until `resume`."""
        self._running_thread().pause()
        self._outage = _outage_in_test("paused")

    def resume(self) -> None:
        """Let a paused broker go on."""
        self._running_thread().resume()
        self._outage = None

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, ConfigValue] | None = None
    ) -> str:
        """Create a topic and return its name, so that it can be used in an expression."""
        from headrace.client import Client, NewTopic

        self._require_running()
        with Client(self.bootstrap_servers) as client:
            client.admin.create_topics([NewTopic(name, partitions, 1, _as_text(configs))])
        return name

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    def _start_on(self, port: int) -> None:
        from headrace.core.broker_configs import BrokerConfig
        from headrace.log.real_files import RealFileSystem
        from headrace.node.node import Node
        from headrace.node.system import RealClock, RealRandomness, ThreadExecutor
        from headrace.testing.unsynced_files import UnsyncedFileSystem

        http_port = self._http_port or (free_port() if self._http else 0)
        text_port = self._text_port or (free_port() if self._text else 0)
        config = BrokerConfig.from_static(
            {
                "http.listener": f"{HOST}:{http_port}" if self._http else "off",
                "text.listener": f"{HOST}:{text_port}" if self._text else "off",
                "log.flush.policy": "fsync" if self._durable else "os",
                "group.initial.rebalance.delay.ms": "0",
                **self._settings,
                "log.dirs": self.data_dir,
                "listeners": f"PLAINTEXT://{HOST}:{port}",
            }
        )
        thread = LoopThread(f"headrace-broker-{port}")
        executor = ThreadExecutor()
        files = RealFileSystem() if self._durable else UnsyncedFileSystem()
        try:
            node = Node(
                config,
                files=files,
                clock=RealClock(),
                randomness=RealRandomness(),
                executor=executor,
            )
            thread.run(node.start(), START_SECONDS)
            if self._http or self._text:
                self._open_extra_listeners(thread, node)
        except BaseException:
            thread.close()
            executor.close()
            files.close()
            raise
        self._node, self._thread, self._executor, self._files = node, thread, executor, files
        self._port = port
        self._http_port = http_port or None
        self._text_port = text_port or None
        self._outage = None

    def _open_extra_listeners(self, thread: LoopThread, node: "Node") -> None:
        try:
            thread.run(node.open_extra_listeners(), START_SECONDS)
        except BaseException:
            thread.run(node.stop(), STOP_SECONDS)
            raise

    def _temporary_directory(self) -> str:
        """Removed by `close`, at the latest with this object or at the end of the process."""
        path = tempfile.mkdtemp(prefix="headrace-")
        self._remove_data = weakref.finalize(self, _remove, path, os.getpid())
        return path

    def _require_running(self) -> None:
        """Raise at once where a client would try until its time is up."""
        if self._outage is not None:
            way = "resume()" if self._node is not None else "start()"
            raise RuntimeError(f"the broker was {self._outage}: call {way} first")
        self._running_thread()

    def _stop_node(self) -> None:
        if self._node is None or self._thread is None:
            return
        self._thread.resume()
        try:
            self._thread.run(self._node.stop(), STOP_SECONDS)
        finally:
            self._discard_node()

    def _discard_node(self) -> None:
        thread, executor, files = self._thread, self._executor, self._files
        self._node = self._thread = self._executor = self._files = None
        if thread is not None:
            thread.close()
        if executor is not None:
            executor.close()
        if files is not None:  # a killed node leaves its descriptors open
            files.close()

    def _running_thread(self) -> LoopThread:
        if self._thread is None:
            told = f"was {self._outage}" if self._outage else "has not been started"
            raise RuntimeError(f"the broker {told}: call start() first")
        return self._thread


def _remove(directory: str, owner: int) -> None:
    if os.getpid() == owner:  # a forked child ends with this too, and the broker is not its own
        shutil.rmtree(directory, ignore_errors=True)


def _outage_in_test(what: str) -> str:
    """What was done to the broker and, under pytest, in which test."""
    test, _, _ = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")
    return f"{what} in {test}" if test else what


def _as_text(configs: Mapping[str, ConfigValue] | None) -> dict[str, str]:
    """Configs as Kafka writes them: 3 is "3", True is "true", "1h" is "3600000"."""
    from headrace.core.config_keys import format_value
    from headrace.core.units import plain_number

    given = configs or {}
    return {name: plain_number(name, format_value(value) or "") for name, value in given.items()}


def free_port() -> int:
    """A port that nobody listens on right now."""
    for _ in range(200):
        port = random.SystemRandom().choice(PORTS)  # tests seed the shared generator
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop}")
