"""What a user can set, as frozen values that pickle (Spark ships them to its executors)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.core.errors import InvalidConfig as InvalidSetting
from headrace.network.settings import ConnectionSettings, SecuritySettings

Acks = Literal["all", 0, 1, -1]
CodecName = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Isolation = Literal["read_uncommitted", "read_committed"]
OffsetReset = Literal["error", "earliest", "latest"]

DEFAULT_PORT = 9092


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Where the cluster is and how patient to be with it.

    `bootstrap_servers` takes `"host:port,host:port"` or an iterable of such strings.
    `call_timeout_ms` bounds a whole call with its retries, `request_timeout_ms` one request,
    `connect_timeout_ms` an attempt to connect and, once more, the other side's first word.
    """

    bootstrap_servers: str | Iterable[str]
    client_id: str = "headrace"
    request_timeout_ms: int = 30_000
    call_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_ms_max: int = 1_000
    metadata_age_ms_max: int = 300_000
    connection_idle_ms_max: int = 540_000
    response_bytes_max: int = 512 * 1024 * 1024
    security: SecuritySettings | None = None

    def __post_init__(self) -> None:
        servers = self.bootstrap_servers
        _check_servers(servers)
        parts = servers.split(",") if isinstance(servers, str) else list(servers)
        cleaned = tuple(part.strip() for part in parts if part.strip())
        if not cleaned:
            raise InvalidSetting("bootstrap_servers is empty; give at least one host:port")
        for server in cleaned:
            parse_address(server)
        object.__setattr__(self, "bootstrap_servers", cleaned)
        at_least(1, self, "request_timeout_ms", "call_timeout_ms", "connect_timeout_ms")
        at_least(0, self, "retry_backoff_ms", "retry_backoff_ms_max")

    @property
    def connection(self) -> ConnectionSettings:
        """What a connection needs of these."""
        return ConnectionSettings(
            client_id=self.client_id,
            connect_timeout_ms=self.connect_timeout_ms,
            greeting_timeout_ms=min(self.connect_timeout_ms, self.request_timeout_ms),
            connection_idle_ms_max=self.connection_idle_ms_max,
            response_bytes_max=self.response_bytes_max,
            security=self.security,
        )

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The bootstrap servers as (host, port) pairs."""
        return [parse_address(server) for server in self.bootstrap_servers]


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """How records are gathered into batches and how hard delivery is tried.

    `acks="all"` waits for every in-sync replica, 1 for the leader only, 0 for nobody (a crash
    or a full queue then loses records without notice). `idempotence` keeps retries free of
    duplicates and in order; None means on whenever `acks="all"`.
    """

    acks: Acks = "all"
    idempotence: bool | None = None
    linger_ms: float = 5
    batch_bytes: int = 64 * 1024
    request_bytes_max: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    codec: CodecName = "none"
    compression_level: int | None = None
    in_flight_max: int = 5
    delivery_timeout_ms: int = 120_000
    block_ms_max: int = 60_000

    def __post_init__(self) -> None:
        if self.acks not in ("all", -1, 0, 1):
            raise InvalidSetting(f"acks={self.acks!r} is not one of 'all', 1, 0")
        if self.codec not in ("none", "gzip", "snappy", "lz4", "zstd"):
            raise InvalidSetting(
                f"codec={self.codec!r} is not one of none, gzip, snappy, lz4, zstd"
            )
        if self.idempotence and self.acks_number != -1:
            raise InvalidSetting(f"idempotence needs acks='all', not {self.acks!r}")
        if self.is_idempotent and not 1 <= self.in_flight_max <= 5:
            # Brokers remember five batches per producer; more in flight could not be told apart.
            raise InvalidSetting("idempotence needs in_flight_max between 1 and 5")
        at_least(1, self, "in_flight_max", "batch_bytes", "request_bytes_max", "buffer_bytes")
        at_least(0, self, "linger_ms", "delivery_timeout_ms", "block_ms_max")

    @property
    def acks_number(self) -> int:
        return -1 if self.acks == "all" else int(self.acks)

    @property
    def is_idempotent(self) -> bool:
        return self.acks_number == -1 if self.idempotence is None else self.idempotence


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """How much to fetch at a time and what to show.

    `offset_reset` says what happens when a position no longer exists: "error" raises
    OffsetOutOfRange (nothing is skipped behind the caller's back), "earliest" and "latest" move.
    `prefetch_bytes` is how much may wait undecoded per partition while the next fetch is sent.
    `sessions` lets brokers remember what is fetched: worth it with hundreds of partitions.
    """

    isolation: Isolation = "read_uncommitted"
    offset_reset: OffsetReset = "error"
    fetch_bytes_min: int = 1
    fetch_wait_ms_max: int = 500
    fetch_bytes_max: int = 50 * 1024 * 1024
    partition_bytes_max: int = 1024 * 1024
    prefetch_bytes: int = 4 * 1024 * 1024
    sessions: bool = False
    check_crc: bool = True
    rack: str = ""

    def __post_init__(self) -> None:
        if self.isolation not in ("read_uncommitted", "read_committed"):
            raise InvalidSetting(
                f"isolation={self.isolation!r} is not read_uncommitted or read_committed"
            )
        if self.offset_reset not in ("error", "earliest", "latest"):
            raise InvalidSetting(
                f"offset_reset={self.offset_reset!r} is not error, earliest or latest"
            )
        at_least(1, self, "partition_bytes_max", "fetch_bytes_max")
        at_least(0, self, "fetch_bytes_min", "fetch_wait_ms_max", "prefetch_bytes")


def _check_servers(servers: object) -> None:
    if not isinstance(servers, Iterable) or isinstance(servers, bytes):
        raise TypeError(
            "bootstrap_servers must be 'host:port' or several of them, "
            f"not {type(servers).__name__}: {servers!r}"
        )


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`, `[v6]:port`, `host` (port 9092) or `PROTOCOL://host:port`."""
    rest = text.split("://", 1)[-1]
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        port_text = tail.removeprefix(":") if bracket else ""
    elif rest.count(":") > 1:
        raise InvalidSetting(f"{text!r}: put an IPv6 address in brackets, as [::1]:9092")
    else:
        host, _, port_text = rest.partition(":")
    if not host:
        raise InvalidSetting(f"{text!r} has no host; write host:port")
    if not port_text:
        return host, DEFAULT_PORT
    if not port_text.isdecimal() or not 0 < int(port_text) < 65536:
        raise InvalidSetting(f"{text!r}: the port must be a number from 1 to 65535")
    return host, int(port_text)


def settings_from(target: "str | Iterable[str] | ClientSettings") -> ClientSettings:
    """Accept the short form (server names) wherever settings are asked for."""
    return target if isinstance(target, ClientSettings) else ClientSettings(target)


def at_least(minimum: int, settings: object, *names: str) -> None:
    """Refuse numbers of a settings object that are too small, by name."""
    values: Mapping[str, float] = {name: getattr(settings, name) for name in names}
    for name, value in values.items():
        if value < minimum:
            raise InvalidSetting(f"{name}={value} must be at least {minimum}")
