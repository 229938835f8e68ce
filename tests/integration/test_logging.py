"""What a broker writes about itself: requests by correlation id, recovery, and no payloads."""

import base64
import json
import logging
import re
import secrets
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from headrace.client import Client, NewTopic
from tests.support.brokers import HeadraceProcess

DEBUG = {"logging.format": "json", "logging.level": "debug"}
SENT = re.compile(r"Sent (\w+)Request \(v(\d+), \d+ bytes @ \d+, CorrId (\d+)\)")


class Kept(logging.Handler):
    """Keeps what a client logs."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"


def objects(broker: HeadraceProcess) -> list[dict[str, Any]]:
    """Every line, the one that says where the broker listens included."""
    return [json.loads(line) for line in broker.log_path.read_text().splitlines()]


def test_a_request_of_a_real_client_is_found_by_its_correlation_id(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data", DEBUG)
    broker.start()
    kept = Kept()
    logger = logging.Logger("client")
    logger.addHandler(kept)
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": "tracked client",
            "debug": "protocol",
            "acks": "all",
        },
        logger=logger,
    )
    for _ in range(3):  # the later ones take the short way of a repeated produce
        producer.produce("orders", b"x")
        assert producer.flush(10) == 0
    producer.poll(0.1)
    assert broker.stop() == 0
    sent = {
        ("ApiVersions" if api == "ApiVersion" else api, int(version), int(number))
        for api, version, number in SENT.findall(kept.text)
    }
    traced = {
        (line["api"], line["version"], line["correlation_id"]): line
        for line in objects(broker)
        if line["message"] == "request" and line["client_id"] == "tracked client"
    }
    assert len([api for api, _, _ in sent if api == "Produce"]) == 3
    assert sent <= set(traced)
    for request in sent:
        line = traced[request]
        assert (line["client"], line["principal"]) == ("/127.0.0.1", "User:ANONYMOUS")
        assert 0 <= line["duration_ms"] < 10_000
        assert line["bytes"] > 10


def test_nothing_of_what_records_hold_is_ever_logged(tmp_path: Path) -> None:
    """At DEBUG, with good and bad records, transfers, a crash and a recovery."""
    secret = f"secret{secrets.token_hex(8)}"
    value, key, header = (f"{secret}-{what}" for what in ("value", "key", "header"))
    settings = DEBUG | {"request.log.slow.ms": "0"}
    broker = HeadraceProcess(tmp_path / "data", settings)
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for _ in range(5):
        producer.produce("orders", value.encode(), key.encode(), headers={"h": header.encode()})
        assert producer.flush(10) == 0
    with Client(broker.bootstrap_servers) as client:
        topic = NewTopic("compacted", configs={"cleanup.policy": "compact"})
        client.admin.create_topics([topic])
    producer.produce("compacted", value.encode())  # refused: it has no key
    assert producer.flush(10) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "g"})
    consumer.assign([TopicPartition("orders", 0, OFFSET_BEGINNING)])
    message = consumer.poll(10)
    assert message is not None
    assert message.value() == value.encode()
    consumer.close()
    broker.kill()
    broker.start()
    assert broker.stop() == 0
    written = broker.log_path.read_text()
    assert '"message": "request", "api": "Produce"' in written
    assert '"message": "slow request", "api":' in written
    for word in (secret, base64.b64encode(secret.encode()).decode()[:-4], secret.encode().hex()):
        assert word not in written


def test_a_start_after_a_kill_says_what_was_recovered(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data", {"logging.format": "json"})
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
    for _ in range(10):
        producer.produce("orders", b"x")
    assert producer.flush(10) == 0
    broker.kill()
    first = broker.log_path.read_text()
    broker.start()
    assert broker.stop() == 0
    [line] = [line for line in objects(broker) if line["message"].startswith("recovered")]
    assert (line["level"], line["path"], line["partitions"]) == ("info", str(broker.data_dir), 1)
    assert line["records_checked"] >= 10
    assert line["duration_ms"] >= 0
    assert "recovered" not in first, "a new directory has nothing to recover"


def test_a_clean_restart_recovers_nothing(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data")
    for _ in range(2):
        broker.start()
        assert broker.stop() == 0
    assert "recovered" not in broker.log_path.read_text()


def test_a_data_directory_with_other_files_in_it_is_worth_a_warning(tmp_path: Path) -> None:
    broker = HeadraceProcess(tmp_path / "data", {"logging.format": "json"})
    (broker.data_dir / "holiday.jpg").touch()
    broker.start()
    broker.restart()  # by now it is ours
    assert broker.stop() == 0
    [line] = [line for line in objects(broker) if line["level"] == "warning"]
    assert line["message"] == "the data directory is not empty and not ours"
    assert (line["first"], line["names"]) == ("holiday.jpg", 1)
