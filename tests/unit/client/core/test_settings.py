"""What settings accept, and how they refuse."""

import pickle
from typing import Any

import pytest

from headrace.client import (
    Client,
    ClientSettings,
    ProducerSettings,
    ReaderSettings,
    SaslSettings,
    SecuritySettings,
    TlsSettings,
)
from headrace.client.core.settings import parse_address
from headrace.core.errors import ErrorCode, HeadraceError, InvalidConfig


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9093", ("localhost", 9093)),
        ("localhost", ("localhost", 9092)),
        ("[::1]:19092", ("::1", 19092)),
        ("PLAINTEXT://kafka:1", ("kafka", 1)),
    ],
)
def test_addresses_are_read_as_people_write_them(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", [":9092", "host:port", "host:0", "host:70000", "::1:9092"])
def test_an_address_that_cannot_work_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"host|port|brackets"):
        parse_address(text)


def test_servers_may_come_in_one_string_or_in_many() -> None:
    together = ClientSettings("a:1, b:2")
    apart = ClientSettings(["a:1", "b:2"])
    assert together == apart
    assert together.addresses == [("a", 1), ("b", 2)]


def test_no_servers_at_all_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="bootstrap_servers"):
        ClientSettings(" , ")


@pytest.mark.parametrize("wrong", [9092, None, b"broker:9092"])
def test_servers_of_the_wrong_type_are_a_type_error(wrong: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap_servers must be 'host:port'"):
        Client(wrong)


def test_settings_survive_pickling() -> None:
    settings = ClientSettings(
        "a:1", client_id="me", security=SecuritySettings(tls=TlsSettings(ca_file="ca.pem"))
    )
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_sasl_is_refused_with_a_way_out() -> None:
    with pytest.raises(HeadraceError, match=r"SCRAM-SHA-256.*not supported") as refusal:
        SecuritySettings(sasl=SaslSettings("SCRAM-SHA-256", "me", "secret"))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(SaslSettings("PLAIN", "me", "secret"))
    assert "secret" not in repr(TlsSettings(key_password="secret"))


def test_idempotence_follows_acks_unless_said_otherwise() -> None:
    assert ProducerSettings().is_idempotent
    assert not ProducerSettings(acks=1).is_idempotent
    assert not ProducerSettings(idempotence=False).is_idempotent
    with pytest.raises(InvalidConfig, match="acks='all'"):
        ProducerSettings(acks=1, idempotence=True)


def test_idempotence_allows_five_in_flight_and_no_more() -> None:
    with pytest.raises(InvalidConfig, match="between 1 and 5"):
        ProducerSettings(in_flight_max=6)
    assert ProducerSettings(acks=1, in_flight_max=6).in_flight_max == 6


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: ProducerSettings(codec="brotli"),  # type: ignore[arg-type]  # the point
        lambda: ProducerSettings(acks=2),  # type: ignore[arg-type]  # the point
        lambda: ProducerSettings(batch_bytes=0),
        lambda: ProducerSettings(linger_ms=-1),
        lambda: ReaderSettings(isolation="dirty"),  # type: ignore[arg-type]  # the point
        lambda: ReaderSettings(offset_reset="none"),  # type: ignore[arg-type]  # the point
        lambda: ReaderSettings(partition_bytes_max=0),
        lambda: ClientSettings("a:1", request_timeout_ms=0),
    ],
)
def test_values_that_cannot_work_are_refused(wrong: type[object]) -> None:
    with pytest.raises(InvalidConfig):
        wrong()
