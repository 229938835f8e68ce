"""`headrace serve` as people and scripts run it: its ready line, its end, and its refusals."""

import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace import __version__
from headrace.client import Client
from headrace.testing.broker import free_port

WAIT_SECONDS = 30


def command(*options: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "serve", *options]


@contextmanager
def serving(*options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A running `serve` and its ready line; killed at the end if it still runs."""
    process = subprocess.Popen(command(*options), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            if "ready on" in line:
                break
        assert "ready on" in said[-1], "".join(said)
        yield process, said[-1]
    finally:
        process.kill()
        process.wait(WAIT_SECONDS)
        process.stderr.close()


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


def refused(*options: str, code: int = 1) -> str:
    """What `serve` says when it must not start; it has to end by itself."""
    done = subprocess.run(command(*options), capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_the_ready_line_tells_the_address_and_sigterm_ends_cleanly(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving("--data-dir", str(data), "--listen", "127.0.0.1:0") as (process, ready):
        match = re.search(
            r"ready on PLAINTEXT://(127\.0\.0\.1:\d+) \(node 0, data in (.*)\)", ready
        )
        assert match is not None
        assert match[2] == str(data)
        with Client(match[1]) as client:
            cluster = client.admin.describe_cluster()
        assert [(each.node_id, f"{each.host}:{each.port}") for each in cluster.brokers] == [
            (0, match[1])
        ]
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
    assert (data / ".kafka_cleanshutdown").exists()


def test_the_log_tells_version_and_settings_first_and_that_it_has_stopped_last(
    tmp_path: Path,
) -> None:
    listen = ["--listen", "127.0.0.1:0", "--http", "off", "--text", "off"]
    options = ["--data-dir", str(tmp_path), *listen, "--set", "log.retention.ms=2h"]
    process = subprocess.Popen(command(*options), stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr as stderr:
        first = stderr.readline()
        while "ready on" not in stderr.readline():
            pass
        process.send_signal(signal.SIGTERM)
        *_, last = stderr
    assert f"starting version={__version__} " in first
    assert "log.retention.ms=7200000" in first
    assert "log.segment.bytes" not in first, "only what differs from its default"
    assert last.endswith(" stopped\n")


def test_control_c_ends_cleanly_too(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0") as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_SECONDS) == 0


def test_flags_are_stronger_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('node.id = 3\nlisteners = "PLAINTEXT://127.0.0.1:1"\nbroker.rack = "r1"\n')
    listen = f"127.0.0.1:{free_port()}"
    options = ["--config", str(file), "--data-dir", str(tmp_path / "d"), "--listen", listen]
    with serving(*options, "--set", "node.id=4"), Client(listen) as client:
        (broker,) = client.admin.describe_cluster().brokers
    assert (broker.node_id, broker.rack) == (4, "r1")


def test_several_named_listeners_are_served(tmp_path: Path) -> None:
    inside, outside = free_port(), free_port()
    options = [
        *("--listen", f"INSIDE://127.0.0.1:{inside}", "--listen", f"OUTSIDE://127.0.0.1:{outside}"),
        *("--set", "listener.security.protocol.map=INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"),
        *("--set", "advertised.listeners=OUTSIDE://localhost:" + str(outside)),
    ]
    with serving("--data-dir", str(tmp_path), *options):
        for port, host in ((inside, "127.0.0.1"), (outside, "localhost")):
            with Client(f"127.0.0.1:{port}") as client:
                (broker,) = client.admin.describe_cluster().brokers
            assert (broker.host, broker.port) == (host, port)


def test_a_second_broker_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with serving("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"):
        said = refused("--data-dir", str(tmp_path), "--listen", "127.0.0.1:0")
    assert str(tmp_path) in said


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    listen = f"127.0.0.1:{free_port()}"
    with serving("--data-dir", str(tmp_path / "a"), "--listen", listen):
        said = refused("--data-dir", str(tmp_path / "b"), "--listen", listen)
    assert f"cannot start: listeners: {listen} is taken by another program\n" in said
    assert "hint: stop it, or choose another address with --listen\n" in said


def test_the_ready_line_has_brackets_around_an_ipv6_address(tmp_path: Path) -> None:
    if not has_ipv6():
        pytest.skip("this machine has no IPv6 loopback")
    with serving("--data-dir", str(tmp_path), "--listen", "[::1]:0") as (_, ready):
        assert "PLAINTEXT://[::1]:" in ready


@pytest.mark.parametrize("option", ["--http", "--text"])
def test_a_listener_that_was_asked_for_and_is_taken_is_told_before_anything_is_ready(
    option: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        listen = ["--data-dir", str(tmp_path), "--listen", "127.0.0.1:0"]
        said = refused(*listen, option, address)
    assert "ready" not in said
    assert f"{address} is taken" in said
    assert f"choose another address with {option}" in said


def test_a_host_that_does_not_exist_is_named(tmp_path: Path) -> None:
    data = ["--data-dir", str(tmp_path)]
    assert "no host 'nohost.invalid'" in refused(*data, "--listen", "nohost.invalid:1")
    said = refused(*data, "--listen", "127.0.0.1:0", "--http", "nohost.invalid:1")
    assert "http.listener: there is no host 'nohost.invalid'" in said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "log.retntion.ms=5"], "did you mean log.retention.ms?"),
        (["--set", "log.retention.ms=soon"], "Not a number of type LONG"),
        (["--config", "/does/not/exist.toml"], "No such file"),
    ],
)
def test_a_wrong_option_says_what_to_do(options: list[str], message: str, tmp_path: Path) -> None:
    assert message in refused("--data-dir", str(tmp_path), *options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--set", "nonsense"], "expected KEY=VALUE"),
        (["--listen", "nowhere"], "NAME://HOST:PORT"),
        (["--set", "nonsense"], "log.retention.hours=24"),
        (["--listen", "127.0.0.1:99999"], "the port must be 0 to 65535"),
        (["--http", "127.0.0.1:99999"], "the port must be 0 to 65535"),
        (["--http", "foo"], "Invalid value for --http"),
        (["--text", "foo"], "Invalid value for --text"),
        (["--log-level", "loud"], "'loud' is not debug"),
    ],
)
def test_wrong_usage_is_exit_code_2(options: list[str], message: str, tmp_path: Path) -> None:
    assert message in refused("--data-dir", str(tmp_path), *options, code=2)


def test_a_data_directory_that_is_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert str(file) in refused("--data-dir", str(file), "--listen", "127.0.0.1:0")


def test_a_broker_runs_without_uvloop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on platforms that have none: the import fails and asyncio's own loop is used."""
    (tmp_path / "uvloop.py").write_text("raise ImportError('not here')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    listen = f"127.0.0.1:{free_port()}"
    with serving("--data-dir", str(tmp_path / "data"), "--listen", listen) as (process, _):
        with Client(listen) as client, client.producer() as producer:
            assert producer.send_and_wait("plain", b"x").offset == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_SECONDS) == 0
