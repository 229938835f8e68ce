"""The command line against a real broker: what people see, what programs get, exit codes."""

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headrace.cli.main import main
from headrace.testing import Broker


class Result(NamedTuple):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Result]


@pytest.fixture
def run(
    headrace_broker: Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Run a command line in this process, against the session's broker."""

    def call(*arguments: str, stdin: str | bytes | None = None) -> Result:
        monkeypatch.setenv("HEADRACE_BOOTSTRAP", headrace_broker.bootstrap_servers)
        if stdin is not None:
            data = stdin.encode() if isinstance(stdin, str) else stdin
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capfd.readouterr()
        code = ended.value.code
        return Result(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


def test_a_topic_is_created_listed_changed_described_and_deleted(run: Run) -> None:
    create = ["topic", "create", "cli-life", "-p", "2", "-c", "retention.ms=60000"]
    assert run(*create).out == "created cli-life\n"
    listed = {row["topic"]: row for row in run("topic", "list", "-o", "json").json()}
    assert (listed["cli-life"]["partitions"], listed["cli-life"]["bytes"]) == (2, 0)
    assert run("topic", "alter", "cli-life", "-p", "3", "-c", "retention.ms=5").code == 0
    described = run("topic", "describe", "cli-life", "-o", "json").json()
    assert described["configs"] == {"retention.ms": "5"}
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert run("topic", "alter", "cli-life", "-u", "retention.ms").code == 0
    assert run("topic", "describe", "cli-life", "-o", "json").json()["configs"] == {}
    assert run("topic", "delete", "cli-life", "--yes").out == "deleted cli-life\n"
    listed = {row["topic"]: row for row in run("topic", "list", "-o", "json").json()}
    assert "cli-life" not in listed


def test_each_topic_is_told_deleted_or_not(run: Run, headrace_broker: Broker) -> None:
    for name in ("cli-gone-a", "cli-gone-b"):
        headrace_broker.create_topic(name)
    result = run("topic", "delete", "cli-gone-a", "cli-nope", "cli-gone-b", "--yes")
    assert result.code == 1
    assert result.out == "deleted cli-gone-a, cli-gone-b\n"
    assert result.err == "headrace: not deleted: cli-nope: does not exist\n"


def test_tables_are_for_people(run: Run, headrace_topic: str) -> None:
    assert headrace_topic in run("topic", "list").out
    shown = run("topic", "describe", headrace_topic, "--all-configs").out
    assert "retention.ms" in shown
    assert "in sync" in shown


def test_configs_of_topics_take_durations_and_sizes_and_know_near_keys(
    run: Run, headrace_topic: str
) -> None:
    configs = ["-c", "retention.ms=1d12h", "-c", "segment.bytes=2MB"]
    assert run("topic", "alter", headrace_topic, *configs).code == 0
    found = run("topic", "describe", headrace_topic, "-o", "json").json()["configs"]
    assert found == {"retention.ms": "129600000", "segment.bytes": "2000000"}
    for command in (["alter", headrace_topic], ["create", f"{headrace_topic}-2"]):
        refused = run("topic", *command, "-c", "retenton.ms=1h")
        assert (refused.code, "did you mean retention.ms?" in refused.err) == (1, True)


def test_sizes_of_topics_and_partitions_are_shown(run: Run, headrace_broker: Broker) -> None:
    headrace_broker.create_topic("cli-sizes", partitions=2)
    run("produce", "cli-sizes", "-p", "1", "x" * 5_000)
    (listed,) = (line for line in run("topic", "list").out.splitlines() if "cli-sizes" in line)
    assert listed.split()[:5] == ["cli-sizes", "2", "1", "5.1", "kB"]
    *_, empty, filled = run("topic", "describe", "cli-sizes", "-o", "json").json()["partitions"]
    assert empty["bytes"] == 0
    assert 5_000 < filled["bytes"] < 5_200
    shown = run("topic", "describe", "cli-sizes").out
    assert "0 B" in shown
    assert "5.1 kB" in shown


def test_an_existing_topic_is_an_error_unless_that_is_fine(run: Run, headrace_topic: str) -> None:
    refused = run("topic", "create", headrace_topic)
    assert refused.code == 1
    assert headrace_topic in refused.err
    again = run("topic", "create", headrace_topic, "--if-not-exists", "-o", "json").json()
    assert again == {"topic": headrace_topic, "created": False}


def test_values_go_in_by_argument_and_come_out_by_line(run: Run, headrace_topic: str) -> None:
    sent = run("produce", headrace_topic, "one", "two", "-o", "json").json()
    assert sent == {"topic": headrace_topic, "records": 2, "last_offsets": {"0": 1}}
    assert run("consume", headrace_topic).out == "one\ntwo\n"


def test_lines_of_stdin_may_carry_keys_and_headers(run: Run, headrace_topic: str) -> None:
    options = ["-K", ":", "-H", "from=stdin"]
    assert run("produce", headrace_topic, *options, stdin="a:1\nno key\n").code == 0
    found = run("consume", headrace_topic, "-f", "json").lines()
    assert [(each["key"], each["value"]) for each in found] == [("a", "1"), (None, "no key")]
    assert found[0]["headers"] == [["from", "stdin"]]
    assert run("consume", headrace_topic, "-f", "key", "-n", "1").out == "a\t1\n"


def test_json_lines_survive_a_round_trip(run: Run, headrace_topic: str) -> None:
    headers = [["h", "1"], ["h", None], ["raw", {"base64": "/wA="}]]
    line = {"key": "", "value": "v", "headers": headers, "timestamp": 1_700_000_000_000}
    tombstone = {"key": "k", "value": None}
    lines = "".join(json.dumps(each) + "\n" for each in (line, tombstone))
    assert run("produce", headrace_topic, "-f", "json", stdin=lines).code == 0
    first, second = run("consume", headrace_topic, "-f", "json").lines()
    assert {name: first[name] for name in line} == line
    assert first["time"] == "2023-11-14T22:13:20.000+00:00"
    assert second["value"] is None


def test_a_line_that_is_not_json_is_named(run: Run, headrace_topic: str) -> None:
    refused = run("produce", headrace_topic, "-f", "json", stdin='{"value": "x"}\nnope\n')
    assert refused.code == 1
    assert "line 2: not JSON" in refused.err
    assert "sent before it: 1 record)" in refused.err
    assert "hint:" in refused.err
    assert run("consume", headrace_topic).out == "x\n"


def test_bytes_that_are_no_text_go_through_unchanged(run: Run, headrace_topic: str) -> None:
    assert run("produce", headrace_topic, stdin=b"\xff\x00\r\nplain\n").code == 0
    printed = run("consume", headrace_topic, "-f", "json")
    assert [each["value"] for each in printed.lines()] == [{"base64": "/wA="}, "plain"]
    assert run("produce", headrace_topic, "-f", "json", stdin=printed.out).code == 0
    again = run("consume", headrace_topic, "-f", "json", "--from", "2").lines()
    assert [each["value"] for each in again] == [{"base64": "/wA="}, "plain"]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("beginning", "a b c"),
        ("1", "b c"),
        ("-1", "c"),
        ("@1700000000001", "b c"),
        ("2023-11-14T22:13:20.002+00:00", "c"),
        ("end", ""),
    ],
)
def test_reading_starts_at_an_offset_or_a_time(
    run: Run, headrace_topic: str, where: str, expected: str
) -> None:
    records = [{"value": v, "timestamp": 1_700_000_000_000 + i} for i, v in enumerate("abc")]
    lines = "".join(json.dumps(each) + "\n" for each in records)
    assert run("produce", headrace_topic, "-f", "json", stdin=lines).code == 0
    assert run("consume", headrace_topic, "--from", where).out.split() == expected.split()


def test_reading_can_be_kept_to_one_partition(run: Run, headrace_broker: Broker) -> None:
    topic = headrace_broker.create_topic("cli-partitions", partitions=2)
    assert run("produce", topic, "zero", "-p", "0").code == 0
    assert run("produce", topic, "one", "-p", "1").code == 0
    assert run("consume", topic, "-p", "1").out == "one\n"
    assert run("consume", topic, "-p", "7").code == 2


def test_an_offset_behind_the_end_is_told(run: Run, headrace_broker: Broker) -> None:
    topic = headrace_broker.create_topic("cli-short", partitions=2)
    assert run("produce", topic, "a", "b", "-p", "0").out == f"sent 2 records to {topic}\n"
    assert run("produce", topic, "c", "-p", "1").out == f"sent 1 record to {topic}\n"
    beyond = run("consume", topic, "--from", "99")
    assert (beyond.code, beyond.out) == (1, "")
    assert f"no offset 99: {topic}-0 ends at offset 2, {topic}-1 ends at offset 1" in beyond.err
    assert run("consume", topic, "--from", "2", "-p", "0") == (0, "", ""), "the end itself is one"
    some = run("consume", topic, "--from", "2")
    assert (some.code, f"{topic}-1 ends at offset 1" in some.err) == (0, True)


def test_a_name_that_no_topic_may_have_is_explained(run: Run) -> None:
    for words in (["produce", "b d", "v"], ["consume", "b d"]):
        refused = run(*words)
        assert refused.code == 1
        assert "ASCII letters, digits, '.', '_' and '-'" in refused.err


def test_wrong_usage_is_exit_code_2(run: Run, headrace_topic: str) -> None:
    assert run("topic", "list", "-o", "xml").code == 2
    assert run("topic", "alter", headrace_topic).code == 2
    assert run("frobnicate").code == 2
    assert run("consume", headrace_topic, "--from", "yesterday").code == 2
    assert run("produce", headrace_topic, "x", "--acks", "3").code == 2
    assert run("produce", headrace_topic, "x", "--codec", "brotli").code == 2
    assert run("produce", headrace_topic, "x", "-H", "name").code == 2
    assert run("consume", headrace_topic, "-n", "-1").code == 2
    assert run("topic", "alter", headrace_topic, "-c", "retention.ms").code == 2
    assert run("topic", "list", "-b", "host:port").code == 2
    assert run("bench", "consume", headrace_topic, "-b", "host:port").code == 2
    assert run("serve", "--set", "x").code == 2
    assert run("serve", "--listen", "foo").code == 2
    assert run("serve", "--log-level", "loud").code == 2


def test_a_count_of_nothing_prints_nothing(run: Run, headrace_topic: str) -> None:
    assert run("produce", headrace_topic, "x", "y").code == 0
    assert run("consume", headrace_topic, "-n", "0") == (0, "", "")
    assert run("consume", headrace_topic, "-n", "1").out == "x\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a file that is full")
def test_output_that_cannot_be_written_is_one_clear_line() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "headrace", "version"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "headrace: cannot write the output: No space left on device\n"


def test_a_refusal_is_exit_code_1_with_the_brokers_reason(run: Run, headrace_topic: str) -> None:
    refused = run("topic", "alter", headrace_topic, "-c", "retention.ms=-7")
    assert refused.code == 1
    assert "Value must be at least -1" in refused.err


def test_no_broker_is_exit_code_3(run: Run) -> None:
    unreachable = run("topic", "list", "-b", "127.0.0.1:1")
    assert unreachable.code == 3
    assert "127.0.0.1:1" in unreachable.err


def test_a_listener_that_does_not_speak_kafka_is_told_early(run: Run) -> None:
    with Broker(text=True) as broker:
        began = time.monotonic()
        host, port = broker.text_address
        unreachable = run("produce", "orders", "x", "-b", f"{host}:{port}")
    assert time.monotonic() - began < 10
    assert unreachable.code == 3
    assert "is that a Kafka listener?" in unreachable.err
    assert "--bootstrap" in unreachable.err


@pytest.mark.parametrize("command", ["produce", "consume", "latency"])
def test_bench_measures_and_reports(run: Run, headrace_topic: str, command: str) -> None:
    if command == "consume":
        assert run("produce", headrace_topic, *("x" for _ in range(50))).code == 0
    options = [] if command == "consume" else ["-n", "50"]
    measured = run("bench", command, headrace_topic, *options, "-o", "json").json()
    assert measured["records"] == 50
    shown = run("bench", command, headrace_topic, *options)
    assert shown.code == 0
    assert "p99 ms" in shown.out or "records per second" in shown.out


def test_the_version_names_the_protocol(run: Run) -> None:
    assert run("version", "-o", "json").json()["kafka"] == "4.3"
    assert run("version").out.startswith("headrace ")
    assert run("--version").out == run("version").out


@pytest.fixture
def data(tmp_path: Path, run: Run) -> Path:
    """A data directory with one topic of three records, left by a broker that stopped."""
    with Broker(data_dir=tmp_path / "data") as broker:
        topic = broker.create_topic("kept")
        assert run("produce", topic, "a", "b", "c", "-b", broker.bootstrap_servers).code == 0
    return tmp_path / "data"


def test_a_healthy_directory_verifies(run: Run, data: Path) -> None:
    findings = run("log", "verify", str(data), "-o", "json").json()
    assert all(each["problems"] == [] for each in findings)
    (kept,) = [each for each in findings if "kept-0" in each["segment"]]
    assert kept["records"] == 3
    assert run("log", "verify", str(data)).code == 0


def test_a_flipped_bit_is_found(run: Run, data: Path) -> None:
    (segment,) = (data / "kept-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    found = run("log", "verify", str(segment))
    assert found.code == 1
    assert "checksum" in found.out
    dumped = run("log", "dump", str(segment), "--records")
    assert dumped.code == 1
    assert "crc_valid=False" in dumped.out
    assert "1 damaged batches" in dumped.err


def test_a_wrong_index_entry_is_found(run: Run, data: Path) -> None:
    (segment,) = (data / "kept-0").glob("*.log")
    segment.with_suffix(".index").write_bytes((1).to_bytes(4, "big") + (7).to_bytes(4, "big"))
    found = run("log", "verify", str(segment), "-o", "json")
    assert found.code == 1
    assert "no batch at position 7" in found.out


def test_a_segment_can_be_dumped_with_its_records(run: Run, data: Path) -> None:
    batches = run("log", "dump", str(data / "kept-0"), "--records", "-o", "json").lines()
    values = [record["value"] for batch in batches for record in batch["records"]]
    assert values == ["a", "b", "c"]
    assert all(batch["crc_valid"] for batch in batches)
    assert "value=b" in run("log", "dump", str(data / "kept-0"), "-r").out


def test_a_path_without_segments_is_refused_with_a_hint(run: Run, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        refused = run("log", "verify", str(path))
        assert refused.code == 1
        assert "hint:" in refused.err
