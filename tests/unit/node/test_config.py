"""Configuration out of a file, the environment and flags."""

from pathlib import Path

import pytest

from headrace.core.errors import InvalidConfig, StartupRefused
from headrace.node.config import load


def written(directory: Path, text: str) -> str:
    file = directory / "broker.toml"
    file.write_text(text)
    return str(file)


def test_the_later_source_is_stronger_key_by_key(tmp_path: Path) -> None:
    file = written(tmp_path, "num.partitions = 1\nlog.retention.ms = 1\nmessage.max.bytes = 1\n")
    environment = {"HEADRACE_LOG_RETENTION_MS": "2", "HEADRACE_MESSAGE_MAX_BYTES": "2"}
    config = load(file, environment, {"message.max.bytes": "3"})
    assert (config.num_partitions, config.log_retention_ms, config.message_max_bytes) == (1, 2, 3)


def test_a_file_may_use_tables_dotted_keys_lists_and_quotes(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """
        listeners = ["PLAINTEXT://127.0.0.1:1"]
        "max.connections.per.ip" = 7
        auto.create.topics.enable = false
        [log]
        flush.policy = "os"
        cleaner.min.cleanable.ratio = 0.25
        """,
    )
    config = load(file, {})
    assert config.listeners == ("PLAINTEXT://127.0.0.1:1",)
    assert config.max_connections_per_ip == 7
    assert config.auto_create_topics_enable is False
    assert config.log_flush_policy == "os"
    assert config.log_cleaner_min_cleanable_ratio == 0.25


def test_the_file_may_be_named_by_the_environment(tmp_path: Path) -> None:
    file = written(tmp_path, "node.id = 9\n")
    assert load(None, {"HEADRACE_CONFIG": file}).node_id == 9


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("log.retntion.ms = 1\n", {}),
        ("", {"log.retntion.ms": "1"}),
    ],
)
def test_an_unknown_key_is_refused_in_a_file_or_a_flag_with_a_hint(
    tmp_path: Path, text: str, flags: dict[str, str]
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(InvalidConfig) as refused:
        load(file, {}, flags)
    assert refused.value.hint.lower().replace("_", ".").endswith("log.retention.ms?")


@pytest.mark.parametrize("levels", ["loud", "headrace.node=loud", "info,debug", "info,,debug"])
def test_a_level_that_does_not_exist_is_refused(levels: str) -> None:
    with pytest.raises(InvalidConfig, match=r"logging\.level"):
        load(None, {}, {"logging.level": levels})


def test_levels_of_single_loggers_are_read() -> None:
    config = load(None, {"HEADRACE_LOGGING_LEVEL": "warning, headrace.node=debug"})
    assert config.logging_level == ("warning", "headrace.node=debug")


def test_an_unknown_variable_is_a_warning_with_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    """A service named headrace makes Kubernetes set such variables in every pod."""
    environment = {
        "HEADRACE_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_PORT": "tcp://10.0.0.1:9092",
        "HEADRACE_LOG_RETNTION_MS": "1",
        "HEADRACE_NODE_ID": "9",
    }
    assert load(None, environment).static == {"node.id": "9"}
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "HEADRACE_SERVICE_HOST" in caplog.text
    assert caplog.text.count("did you mean") == 1
    assert "variable=HEADRACE_LOG_RETNTION_MS hint=did you mean log.retention.ms?" in caplog.text
    assert "did you mean log.retention.ms?" in caplog.text


def test_a_bad_value_of_a_known_variable_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="Not a number"):
        load(None, {"HEADRACE_NODE_ID": "tcp://10.0.0.1:9092"})


def test_variables_of_tests_and_tools_are_left_alone() -> None:
    others = {"HEADRACE_TOOLS_DIR": "x", "HEADRACE_TEST_LONG": "1", "HEADRACE_BOOTSTRAP": "h:1"}
    assert load(None, others).static == {}


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("log.dirs = /var/lib/headrace\n", 'text is quoted in TOML, as in log.retention.ms = "1h"'),
        ("log.retention.ms = 1h\n", 'text is quoted in TOML, as in log.retention.ms = "1h"'),
        (
            "max.connections = 9\nmax.connections.per.ip = 3\n",
            'quoted, as in "max.connections.per.ip" = 5',
        ),
    ],
)
def test_toml_that_cannot_be_read_says_what_to_quote(tmp_path: Path, text: str, hint: str) -> None:
    with pytest.raises(InvalidConfig, match="not valid TOML") as refused:
        load(written(tmp_path, text), {})
    assert hint in (refused.value.hint or "")


def test_the_hint_of_a_quoted_key_is_right(tmp_path: Path) -> None:
    file = written(tmp_path, 'max.connections = 9\n"max.connections.per.ip" = 5\n')
    config = load(file, {})
    assert (config.max_connections, config.max_connections_per_ip) == (9, 5)


def test_durations_and_sizes_may_stand_in_every_source(tmp_path: Path) -> None:
    file = written(tmp_path, 'log.retention.ms = "2h"\n')
    config = load(
        file, {"HEADRACE_LOG_RETENTION_BYTES": "10MB"}, {"log.segment.delete.delay.ms": "1m30s"}
    )
    assert config.log_retention_ms == 7_200_000
    assert config.log_retention_bytes == 10_000_000
    assert config.log_segment_delete_delay_ms == 90_000


def test_old_names_of_keys_work_in_every_source(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path, 'http.body.bytes.max = "1MiB"\n')
    environment = {"HEADRACE_HTTP_STREAMS_MAX": "3"}
    config = load(file, environment, {"text.connections.max": "4"})
    assert config.http_max_body_bytes == 1024 * 1024
    assert (config.http_max_streams, config.text_max_connections) == (3, 4)
    assert caplog.text.count("has a new name") == 3


def test_a_key_by_its_old_and_its_new_name_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path, "http.streams.max = 3\n")
    with pytest.raises(InvalidConfig, match=r"http\.streams\.max and http\.max\.streams are one"):
        load(file, {}, {"http.max.streams": "3"})


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartupRefused, match="No such file"):
        load(str(tmp_path / "missing.toml"), {})
    with pytest.raises(InvalidConfig, match="not valid TOML"):
        load(written(tmp_path, "node.id = \n"), {})
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# caf\xe9\n")
    with pytest.raises(InvalidConfig, match="not UTF-8"):
        load(str(latin), {})
    with pytest.raises(InvalidConfig, match="is no value"):
        load(written(tmp_path, "node.id = 2026-01-01\n"), {})
