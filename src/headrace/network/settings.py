"""What a connection needs to know, as frozen values that pickle (Spark ships them about)."""

from dataclasses import dataclass, field

from headrace.core.errors import ErrorCode, HeadraceError


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files and names for a TLS connection; the context itself is made where it is used.

    `ca_file` None trusts the system's certificates. `certificate_file` and `key_file` are for
    brokers that ask clients for a certificate.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    check_hostname: bool = True


@dataclass(frozen=True, slots=True)
class SaslSettings:
    """Who we are; kept apart from TLS because either may be used without the other."""

    mechanism: str
    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """How connections are protected. SASL is not spoken yet and is refused by name."""

    tls: TlsSettings | None = None
    sasl: SaslSettings | None = None

    def __post_init__(self) -> None:
        if self.sasl is not None:
            raise UnsupportedSecurity(
                f"SASL ({self.sasl.mechanism}) is not supported by this client yet; "
                "connect to a listener without SASL (PLAINTEXT or SSL)"
            )


class UnsupportedSecurity(HeadraceError):
    """The settings ask for a mechanism that this client does not speak."""

    code = ErrorCode.UNSUPPORTED_SASL_MECHANISM


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """How connections are made and kept.

    `connect_timeout_ms` bounds the attempt to connect, `greeting_timeout_ms` the other side's
    first word after it. A connection with nothing in flight closes after
    `connection_idle_ms_max`.
    """

    client_id: str
    connect_timeout_ms: int
    greeting_timeout_ms: int
    connection_idle_ms_max: int
    response_bytes_max: int
    security: SecuritySettings | None = None
