"""Hands for the client's core: a session with a clock of its own, metadata, and flow answers."""

from collections.abc import Sequence
from uuid import UUID

from headrace.client.core.cluster import Cluster
from headrace.client.core.operations import ClientOperation, Effect, SendAll, Session, Sleep, T
from headrace.client.core.settings import ClientSettings
from headrace.core.errors import HeadraceError
from headrace.network.send_request import SendRequest
from headrace.protocol.message import Message
from headrace.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

TOPIC_ID = UUID(int=7)


class FixedRandomness:
    """Randomness without surprise: no jitter."""

    def uuid(self) -> UUID:
        return UUID(int=1, version=4)

    def random(self) -> float:
        return 0.5


class ManualClock:
    """Time that moves when told."""

    def __init__(self) -> None:
        self.ms = 0.0

    def __call__(self) -> float:
        return self.ms


def make_session(clock: ManualClock | None = None, **settings: int) -> Session:
    """A session that knows one bootstrap server and nothing else."""
    made = ClientSettings("boot:9092", **settings)  # type: ignore[arg-type]  # numbers only
    return Session(
        settings=made,
        cluster=Cluster(made.addresses),
        randomness=FixedRandomness(),
        now_ms=ManualClock() if clock is None else clock,
        connected=list,
    )


def metadata(
    partitions: int = 1,
    *,
    topic: str = "t",
    leader: int = 0,
    epoch: int = 0,
    brokers: Sequence[int] = (0,),
    topic_id: UUID = TOPIC_ID,
    error_code: int = 0,
) -> MetadataResponse:
    """A Metadata answer about one topic."""
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092)
            for node in brokers
        ],
        cluster_id="cluster",
        controller_id=brokers[0] if brokers else -1,
        topics=[
            MetadataResponseTopic(
                error_code=error_code,
                name=topic,
                topic_id=topic_id,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index,
                        leader_id=leader,
                        leader_epoch=epoch,
                        replica_nodes=list(brokers),
                        isr_nodes=list(brokers),
                    )
                    for index in range(0 if error_code else partitions)
                ],
            )
        ],
    )


class OperationDriver:
    """Drives a flow by hand: shows what it asks for, and takes the answers."""

    def __init__(self, operation: ClientOperation[T]) -> None:
        self._flow = operation
        self.result: object = None
        self.is_done = False
        self.effect: Effect | None = None
        self._step(None)

    def respond(
        self, value: Message | HeadraceError | list[Message | HeadraceError] | None
    ) -> None:
        """Resume with an answer; an error is raised where a single answer was awaited."""
        self._step(value)

    def pass_time(self, clock: ManualClock) -> float:
        """Let a pause pass; returns how long it was."""
        assert isinstance(self.effect, Sleep), self.effect
        ms = self.effect.ms
        clock.ms += ms
        self._step(None)
        return ms

    def send(self) -> SendRequest:
        """The one request the flow is waiting for."""
        assert isinstance(self.effect, SendRequest), self.effect
        return self.effect

    def requests(self) -> Sequence[SendRequest]:
        """The requests the flow is waiting for."""
        assert isinstance(self.effect, SendAll), self.effect
        return self.effect.requests

    def _step(self, value: object) -> None:
        try:
            if isinstance(value, HeadraceError):
                self.effect = self._flow.throw(value)
            else:
                self.effect = self._flow.send(value)
        except StopIteration as stop:
            self.result, self.is_done, self.effect = stop.value, True, None
