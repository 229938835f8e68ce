"""Where a broker listens."""

from dataclasses import dataclass

from headrace.core.ids import NodeId


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """One broker as others reach it. Bootstrap servers have ids of -2 and below."""

    node_id: NodeId
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def is_same_address(self, other: "BrokerAddress") -> bool:
        """Whether a connection to one is a connection to the other."""
        return (self.host, self.port) == (other.host, other.port)
