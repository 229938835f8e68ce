"""Kafka's dump tool finds nothing wrong with logs of every client, rolled, recovered, compacted."""

from __future__ import annotations

import base64
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.integration.conftest import make_one
from tests.integration.test_kcat import kcat
from tests.support import tools
from tests.support.brokers import BrokerProcess
from tests.support.dump_log import DumpedLog, dump
from tests.support.groups import required
from tests.support.kafka_tools import KafkaTools
from tests.support.topics import CODECS, Topics, samples

_PATIENCE_SECONDS = 60
_ENOUGH_FOR_A_SNAPSHOT = 2_100
_METADATA = "__cluster_metadata-0"
_SETTINGS = {"log.cleaner.backoff.ms": "200"}
_ROLLING = {"segment.bytes": str(1 << 20), "index.interval.bytes": "1000"}
_COMPACTING = {
    **_ROLLING,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "0",
}
# librdkafka compresses with lz4 only where FindCoordinator v0 is advertised.
_TIED_TO_COORDINATOR = ("confluent-kafka", "kcat")
_CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "java")

pytestmark = pytest.mark.xdist_group("dump-log")


@pytest.fixture(scope="module")
def kafka_tools() -> KafkaTools:
    return required(KafkaTools)


@pytest.fixture(scope="module")
def written(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    kafka_tools: KafkaTools,
) -> Iterator[dict[Path, DumpedLog]]:
    """Everything is written to one broker, which is killed, recovers and stops; then dumped."""
    required(tools.kcat)
    against: str = request.config.getoption("--against")
    broker = make_one(against, tmp_path_factory.mktemp("dump") / "data", _SETTINGS)
    broker.start()
    try:
        topics = Topics(broker.bootstrap_servers)
        for codec in CODECS:
            for client in _CLIENTS[:-1]:
                topics.create(f"{client}-{codec}")
            topics.create(f"rolled-{codec}", 1, _ROLLING)
            topics.create(f"compacted-{codec}", 1, _COMPACTING)
            _write_with_python_clients(broker, codec)
            _write_with_kcat(broker, codec)
            _write_for_rolls(broker, f"rolled-{codec}", codec, keys=0)
            _write_for_rolls(broker, f"compacted-{codec}", codec, keys=200)
        _write_with_java(broker, topics, kafka_tools)
        for codec in CODECS:
            _wait_until_compacted(broker.partition_dir(f"compacted-{codec}"))
        topics.create("killed", 1, _ROLLING)
        _kill_while_writing(broker)
        # A snapshot will cut the metadata log short: what it held until now is kept aside.
        shutil.copytree(broker.data_dir / _METADATA, broker.data_dir.with_name("early") / _METADATA)
        broker.start()
        _write_for_rolls(broker, "killed", "none", keys=0, count=200)
        if against == "headrace":
            # So many records make a snapshot of the metadata due.
            topics.create("many", _ENOUGH_FOR_A_SNAPSHOT)
        broker.stop()
        names = [f"{client}-{codec}-0" for client in _CLIENTS for codec in CODECS]
        names += [f"{kind}-{codec}-0" for kind in ("rolled", "compacted") for codec in CODECS]
        yield dump(kafka_tools, [broker.data_dir / name for name in [*names, "killed-0"]])
    finally:
        broker.kill()


@pytest.fixture(scope="module")
def data_dir(written: dict[Path, DumpedLog]) -> Path:
    return next(iter(written)).parent


def _write_with_python_clients(broker: BrokerProcess, codec: str) -> None:
    chosen = None if codec == "none" else codec
    sent = samples(60)
    confluent = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "compression.type": codec, "linger.ms": 5}
    )
    python = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, compression_type=chosen)
    for sample in sent:
        confluent.produce(f"confluent-kafka-{codec}", sample.value, sample.key)
        python.send(f"kafka-python-{codec}", sample.value, sample.key)
    assert confluent.flush(_PATIENCE_SECONDS) == 0
    python.flush(_PATIENCE_SECONDS)
    python.close()
    _run_aiokafka(broker, codec, chosen)


def _run_aiokafka(broker: BrokerProcess, codec: str, chosen: str | None) -> None:
    import asyncio

    async def write() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap_servers, compression_type=chosen
        )
        await producer.start()
        for sample in samples(60):
            await producer.send(f"aiokafka-{codec}", sample.value, sample.key)
        await producer.stop()

    asyncio.run(write())


def _write_with_kcat(broker: BrokerProcess, codec: str) -> None:
    lines = "".join(f"key{number}:{'value' * 20}\n" for number in range(60))
    kcat(broker, "-P", "-t", f"kcat-{codec}", "-p", "0", "-K:", "-z", codec, text=lines)


def _write_with_java(broker: BrokerProcess, topics: Topics, kafka_tools: KafkaTools) -> None:
    for codec in CODECS:
        topics.create(f"java-{codec}")
    common = ["--num-records", "500", "--record-size", "100", "--throughput", "-1"]
    commands = [
        [
            "org.apache.kafka.tools.ProducerPerformance",
            *("--bootstrap-server", broker.bootstrap_servers),
            *("--topic", f"java-{codec}"),
            *common,
            *("--command-property", f"compression.type={codec}"),
        ]
        for codec in CODECS
    ]
    for result in kafka_tools.run_batch(commands):
        result.checked()


def _write_for_rolls(
    broker: BrokerProcess, topic: str, codec: str, keys: int, count: int = 4000
) -> None:
    """Enough bytes that hardly compress for several segments of a mebibyte.

    Half of them by librdkafka and half by kafka-python, whose snappy frames differ.
    """
    confluent = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "compression.type": codec,
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.num.messages": 100,
        }
    )
    python = KafkaProducer(
        bootstrap_servers=broker.bootstrap_servers,
        compression_type=None if codec == "none" else codec,
        linger_ms=5,
    )
    for number in range(count):
        key = f"key-{number % keys}".encode() if keys else None
        value = base64.b64encode(os.urandom(720))
        if number < count // 2:
            confluent.produce(topic, value, key, partition=0)
            confluent.poll(0)
        else:
            python.send(topic, value, key, partition=0)
        if number == count // 2:
            assert confluent.flush(_PATIENCE_SECONDS) == 0
    python.flush(_PATIENCE_SECONDS)
    python.close()


def _wait_until_compacted(directory: Path) -> None:
    """200 keys in the cleaned part: its segments shrink to a fraction of a mebibyte."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        logs = sorted(directory.glob("*.log"))
        total = sum(path.stat().st_size for path in logs if path.exists())
        if total < 2_400_000:
            return
        assert time.monotonic() < deadline, f"{directory} still holds {total} bytes"
        time.sleep(0.05)


def _kill_while_writing(broker: BrokerProcess) -> None:
    """SIGKILL after some acknowledgements, with more on the way."""
    acknowledged = []
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "linger.ms": 0,
            "batch.num.messages": 20,
            "message.timeout.ms": 1000,
            "log_level": 0,
        }
    )
    for number in range(6000):
        producer.produce(
            "killed",
            base64.b64encode(os.urandom(400)),
            partition=0,
            on_delivery=lambda error, _: None if error else acknowledged.append(1),
        )
        producer.poll(0)
        if number == 5000:
            while not acknowledged:
                producer.poll(0.1)
            broker.kill()
    producer.flush(_PATIENCE_SECONDS)


@pytest.mark.parametrize("client", _CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_the_log_of_every_client_and_codec_is_sound(
    written: dict[Path, DumpedLog], data_dir: Path, client: str, codec: str
) -> None:
    log = written[data_dir / f"{client}-{codec}-0"]
    log.assert_sound()
    # A client may leave a batch plain that compression would not make smaller.
    assert log.codecs <= {codec, "none"}
    if codec != "lz4" or client not in _TIED_TO_COORDINATOR:
        assert codec in log.codecs
    assert len(log.offsets) >= 60


@pytest.mark.parametrize("codec", CODECS)
def test_a_rolled_log_is_sound(written: dict[Path, DumpedLog], data_dir: Path, codec: str) -> None:
    log = written[data_dir / f"rolled-{codec}-0"]
    log.assert_sound()
    assert log.segments >= 3
    assert log.offsets == list(range(4000))


@pytest.mark.parametrize("codec", CODECS)
def test_a_compacted_log_is_sound(
    written: dict[Path, DumpedLog], data_dir: Path, codec: str
) -> None:
    log = written[data_dir / f"compacted-{codec}-0"]
    log.assert_sound()
    assert 200 <= len(log.offsets) < 4000
    assert log.offsets[-1] == 3999


def test_a_log_recovered_from_sigkill_is_sound(
    written: dict[Path, DumpedLog], data_dir: Path
) -> None:
    log = written[data_dir / "killed-0"]
    log.assert_sound()
    assert log.offsets == list(range(len(log.offsets)))
    assert len(log.offsets) > 200


@pytest.mark.parametrize("moment", ["early", "late"])
def test_the_metadata_log_and_its_snapshot_hold_no_unknown_record(
    written: dict[Path, DumpedLog], data_dir: Path, kafka_tools: KafkaTools, moment: str
) -> None:
    assert written
    directory = (data_dir if moment == "late" else data_dir.with_name("early")) / _METADATA
    if moment == "late":
        assert list(directory.glob("*.checkpoint")), "no snapshot was taken"
    log = dump(kafka_tools, [directory], "--cluster-metadata-decoder")[directory]
    assert not log.complaints
    expected = ["TOPIC_RECORD", "PARTITION_RECORD", "REGISTER_BROKER_RECORD"]
    if moment == "early":
        expected.append("LeaderChange")
    for record in expected:
        assert record in log.text, f"no {record} in the metadata"


def test_the_check_sees_damage(
    written: dict[Path, DumpedLog], data_dir: Path, kafka_tools: KafkaTools, tmp_path: Path
) -> None:
    """A checker that never failed has checked nothing: each kind of damage must be noticed."""
    sound = data_dir / "rolled-gzip-0"
    written[sound].assert_sound()
    log, index = f"{0:020}.log", f"{0:020}.index"
    damages: dict[str, tuple[str, int]] = {
        "a payload bit": (log, 200),
        "a base offset": (log, 4),
        "an index entry": (index, 7),
    }
    copies = {name: tmp_path / name.replace(" ", "-") / "damaged-0" for name in damages}
    for name, (file, position) in damages.items():
        shutil.copytree(sound, copies[name])
        path = copies[name] / file
        content = bytearray(path.read_bytes())
        content[position] ^= 0x10
        path.write_bytes(content)
    found = dump(kafka_tools, list(copies.values()))
    for directory in copies.values():
        with pytest.raises(AssertionError):
            found[directory].assert_sound()
