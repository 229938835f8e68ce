"""`kafka.*` options as settings of the client; those it does not have are refused by name."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from headrace.client import ClientSettings, ReaderSettings, SecuritySettings, TlsSettings
from headrace.core.errors import InvalidConfig

_PREFIX: Final = "kafka."
BOOTSTRAP: Final = "bootstrap.servers"

# Kafka's name, and ours.
_TIMES: Final = {
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "call_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_ms_max",
    "metadata.max.age.ms": "metadata_age_ms_max",
    "connections.max.idle.ms": "connection_idle_ms_max",
}
_FETCH_SIZES: Final = {
    "fetch.min.bytes": "fetch_bytes_min",
    "fetch.max.wait.ms": "fetch_wait_ms_max",
    "fetch.max.bytes": "fetch_bytes_max",
    "max.partition.fetch.bytes": "partition_bytes_max",
}
_TLS: Final = {
    "ssl.ca.location": "ca_file",
    "ssl.truststore.location": "ca_file",
    "ssl.certificate.location": "certificate_file",
    "ssl.keystore.location": "certificate_file",
    "ssl.key.location": "key_file",
    "ssl.key.password": "key_password",
}
_TLS_OTHER: Final = (
    "ssl.truststore.type",
    "ssl.keystore.type",
    "ssl.endpoint.identification.algorithm",
)
_CONNECTION_KEYS: Final = (BOOTSTRAP, "client.id", "security.protocol", *_TIMES, *_TLS, *_TLS_OTHER)
FETCH_KEYS: Final = (*_FETCH_SIZES, "isolation.level", "client.rack", "group.id")

_REFUSED: Final = {
    "auto.offset.reset": "set startingOffsets instead: offsets are kept by the checkpoint",
    "enable.auto.commit": "offsets are kept by the checkpoint; commitGroup publishes them",
    "key.deserializer": "keys are bytes; cast them in the query",
    "value.deserializer": "values are bytes, or typed by valueFormat",
    "key.serializer": "keys are bytes or strings",
    "value.serializer": "values are bytes or strings",
    "interceptor.classes": "there is no Java here to run interceptors",
    "check.crcs": "checksums are always checked",
}
# Larger than a consumer's default: one answer is one Arrow batch, and small ones cost time.
PARTITION_BYTES_DEFAULT: Final = 4 * 1024 * 1024


def given_kafka(options: Mapping[str, str]) -> dict[str, str]:
    """The `kafka.*` options without that prefix."""
    return {
        name[len(_PREFIX) :].lower(): str(value)
        for name, value in options.items()
        if name.lower().startswith(_PREFIX)
    }


def connection(
    options: Mapping[str, str], *, also: Iterable[str] = (), client_id: str | None = None
) -> ClientSettings:
    """How to reach the cluster; `also` names further keys that the caller reads by itself."""
    kafka = given_kafka(options)
    allowed = sorted({*_CONNECTION_KEYS, *also})
    for name in kafka:
        if name in _REFUSED:
            raise InvalidConfig(f"option 'kafka.{name}' cannot be set: {_REFUSED[name]}")
        if name.startswith("sasl."):
            raise InvalidConfig(f"option 'kafka.{name}': SASL is not supported by this client yet")
        if name not in allowed:
            listed = ", ".join(f"kafka.{each}" for each in allowed)
            raise InvalidConfig(
                f"option 'kafka.{name}' has no meaning here, leave it out; allowed are {listed}"
            )
    servers = kafka.get(BOOTSTRAP)
    if not servers:
        raise InvalidConfig("option 'kafka.bootstrap.servers' must be set, as in host:9092")
    numbers = {ours: number(kafka, theirs) for theirs, ours in _TIMES.items() if theirs in kafka}
    return ClientSettings(
        bootstrap_servers=servers,
        client_id=kafka.get("client.id") or client_id or "headrace-spark",
        security=_security(kafka),
        **numbers,
    )


def fetch_settings(kafka: Mapping[str, str]) -> ReaderSettings:
    """How to fetch; a position that no longer exists is always an error for us to look at."""
    isolation: Any = kafka.get("isolation.level", "read_uncommitted").lower()
    if isolation not in ("read_uncommitted", "read_committed"):
        raise InvalidConfig(
            f"kafka.isolation.level={isolation!r} is not read_uncommitted or read_committed"
        )
    sizes: dict[str, Any] = {"partition_bytes_max": PARTITION_BYTES_DEFAULT}
    sizes |= {
        ours: number(kafka, theirs) for theirs, ours in _FETCH_SIZES.items() if theirs in kafka
    }
    return ReaderSettings(
        isolation=isolation,
        prefetch_bytes=sizes["partition_bytes_max"],
        rack=kafka.get("client.rack", ""),
        **sizes,
    )


def number(kafka: Mapping[str, str], name: str) -> int:
    """A whole number that is not negative."""
    text = kafka[name].strip()
    if not re.fullmatch(r"\d+", text):
        raise InvalidConfig(f"kafka.{name}={text!r} is not a whole number")
    return int(text)


def _security(kafka: Mapping[str, str]) -> SecuritySettings | None:
    protocol = kafka.get("security.protocol", "PLAINTEXT").upper()
    given = [name for name in (*_TLS, *_TLS_OTHER) if name in kafka]
    if protocol == "PLAINTEXT":
        if given:
            raise InvalidConfig(f"kafka.{given[0]} needs kafka.security.protocol=SSL")
        return None
    if protocol != "SSL":
        raise InvalidConfig(
            f"kafka.security.protocol={protocol} is not supported; allowed are PLAINTEXT and SSL"
        )
    for name in ("ssl.truststore.type", "ssl.keystore.type"):
        if kafka.get(name, "PEM").upper() != "PEM":
            raise InvalidConfig(f"kafka.{name}={kafka[name]}: only PEM files are read")
    files = {ours: kafka[theirs] for theirs, ours in _TLS.items() if theirs in kafka}
    if "key_password" in files:
        files["key_password"] = secret(files["key_password"])
    check = kafka.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if check not in ("", "none", "https"):
        raise InvalidConfig("kafka.ssl.endpoint.identification.algorithm is https or none")
    return SecuritySettings(tls=TlsSettings(**files, check_hostname=check == "https"))


def secret(text: str) -> str:
    """A value, or what `env:NAME` or `file:PATH` points at: secrets need not stand in a plan."""
    if text.startswith("env:"):
        found = os.environ.get(text[4:])
        if found is None:
            raise InvalidConfig(f"the environment has no {text[4:]}, which an option names")
        return found
    if text.startswith("file:"):
        try:
            return Path(text[5:]).read_text().strip()
        except OSError as error:
            raise InvalidConfig(f"cannot read {text[5:]}, which an option names") from error
    return text
