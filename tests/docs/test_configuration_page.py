"""What the page on configuration says can be done, done."""

import re
from pathlib import Path

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from headrace.node.config import load
from headrace.testing import Broker

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()
KEY = "log.cleaner.backoff.ms"


def test_kafka_python_names_the_broker_and_refuses_the_empty_name(headrace_broker: Broker) -> None:
    """As the page says; confluent-kafka is tested with the keys' effects, `kafka-configs.sh` with
    Kafka's commands."""
    admin = KafkaAdminClient(bootstrap_servers=headrace_broker.bootstrap_servers)
    try:
        done = admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "0", {KEY: "12345"})])
        assert done == {"broker": {"0": "OK"}}
        with pytest.raises(ValueError, match="Broker resource names must be an integer"):
            admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, "", {KEY: "23456"})])
    finally:
        admin.close()


def test_the_file_shown_is_read(tmp_path: Path) -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    file = tmp_path / "broker.toml"
    file.write_text(shown)
    config = load(str(file), environment={}, overrides={})
    assert config.data_directory == "/var/lib/headrace"
    assert config.log_retention_hours == 72
