"""Until transactions exist a transactional producer is told so at once instead of being kept."""

from __future__ import annotations

import time

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

from tests.support.brokers import BrokerProcess

_AT_ONCE_SECONDS = 10


@pytest.fixture(autouse=True)
def _only_here(request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--against") == "kafka":
        pytest.skip("Kafka has transactions")


def test_librdkafka_is_told_why(broker: BrokerProcess) -> None:
    """It retries all codes but those of authorization, for ever if it is let."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "none",
            "log_level": 0,
        }
    )
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(_AT_ONCE_SECONDS)
    error = refused.value.args[0]
    assert error.code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert error.fatal()
    assert "transactions are not supported yet" in error.str()


def test_kafka_python_fails_at_once(broker: BrokerProcess) -> None:
    start = time.monotonic()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="none")
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    assert time.monotonic() - start < _AT_ONCE_SECONDS
    producer.close(timeout=1)


async def test_aiokafka_fails_at_once(broker: BrokerProcess) -> None:
    start = time.monotonic()
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id="none")
    try:
        with pytest.raises(TransactionalIdAuthorizationFailed):
            await producer.start()
    finally:
        await producer.stop()
    assert time.monotonic() - start < _AT_ONCE_SECONDS
