"""The producer's core against a model of a partition leader, over connections that break.

Whatever is lost, requests or answers, and in whatever order things happen: every record that
was acknowledged is in the log at the offset told, no record is there twice, and the records of
a partition are there in the order they were sent.
"""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client import ProducerSettings, RecordMetadata
from headrace.client.core.accumulator import RecordAccumulator
from headrace.client.core.errors import DeliveryTimedOut
from headrace.client.core.partition_queue import ProducerIdentity
from headrace.client.core.planned_produce import PlannedProduce
from headrace.core.errors import ErrorCode, HeadraceError
from headrace.network.errors import BrokerUnreachable
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.protocol.records.checksum import crc32c
from headrace.protocol.records.decode import iterate_records
from headrace.protocol.records.header import ATTRIBUTES_AT, parse_header
from tests.support.client_core import TOPIC_ID, ManualClock, make_session, metadata

PARTITIONS = 2
REMEMBERED = 5
BURST = 4


@dataclass
class Producer:
    epoch: int
    batches: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))


@dataclass
class Leader:
    """One partition as its leader keeps it: records and what is known of each producer."""

    log: list[bytes] = field(default_factory=list)
    producers: dict[int, Producer] = field(default_factory=dict)
    refuse: bytes | None = None
    # A batch with this record fails in the broker, before or after it was written.
    stumble: bytes | None = None
    stumbles_after_append: bool = False
    busy: bool = False
    records_max: int = 1000

    def append(self, data: bytes) -> tuple[ErrorCode, int]:
        header = parse_header(data)
        if header.record_count > self.records_max:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if self.busy:
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        assert crc32c(data[ATTRIBUTES_AT:]) == header.crc
        values = [record.value or b"" for record in iterate_records(data)]
        if self.refuse in values:
            return ErrorCode.INVALID_RECORD, -1
        known = self.producers.get(header.producer_id)
        sequence = header.base_sequence
        if known is not None and header.producer_epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if known is not None and header.producer_epoch == known.epoch:
            for first, last, offset in known.batches:
                if (first, last) == (sequence, header.last_sequence):
                    return ErrorCode.NONE, offset
            if known.batches and sequence != known.batches[-1][1] + 1:
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif known is not None and sequence != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        elif known is None and sequence != 0 and self.log:
            # As after producer state was lost with the data that carried it.
            return ErrorCode.UNKNOWN_PRODUCER_ID, -1
        stumbles = self.stumble in values
        if stumbles and not self.stumbles_after_append:
            return ErrorCode.UNKNOWN_SERVER_ERROR, -1
        offset = len(self.log)
        if known is None or known.epoch != header.producer_epoch:
            known = self.producers[header.producer_id] = Producer(header.producer_epoch)
        known.batches.append((sequence, header.last_sequence, offset))
        self.log += values
        if stumbles:
            return ErrorCode.UNKNOWN_SERVER_ERROR, -1
        return ErrorCode.NONE, offset


class Run:
    """A producer's core, two leaders behind one connection, and what was promised to whom."""

    def __init__(self, in_flight_max: int, delivery_timeout_ms: int = 10_000_000) -> None:
        self.clock = ManualClock()
        self.session = make_session(self.clock)
        self.session.cluster.update(metadata(PARTITIONS), 0)
        self.settings = ProducerSettings(
            linger_ms=5,
            batch_bytes=120,
            in_flight_max=in_flight_max,
            delivery_timeout_ms=delivery_timeout_ms,
        )
        self.sending = RecordAccumulator(self.session, self.settings, self.settle)
        self.sending.identity = ProducerIdentity(1, 0)
        self.leaders = [Leader() for _ in range(PARTITIONS)]
        self.outcomes: dict[bytes, RecordMetadata | HeadraceError] = {}
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self.requests: deque[PlannedProduce] = deque()
        self.answers: deque[tuple[PlannedProduce, ProduceResponse]] = deque()
        self.ids = 1

    def settle(self, waiter: bytes, outcome: RecordMetadata | HeadraceError) -> None:
        assert waiter not in self.outcomes
        self.outcomes[waiter] = outcome

    def send(self, partition: int) -> None:
        value = b"%d-%d" % (partition, len(self.sent[partition]))
        self.sent[partition].append(value)
        self.sending.append("t", partition, None, value, (), 0, value, self.clock.ms)

    def drain(self) -> None:
        if self.sending.needs_identity:
            self.ids += 1
            self.sending.identity = ProducerIdentity(self.ids, 0)
        for topic in self.sending.stale_topics(self.clock.ms):
            self.session.cluster.update(metadata(PARTITIONS, topic=topic), self.clock.ms)
        self.requests.extend(self.sending.drain(self.clock.ms))

    def serve(self) -> None:
        """The broker takes the oldest request and answers it; the answer is on its way."""
        if not self.requests:
            return
        call = self.requests.popleft()
        request = call.send.request
        assert isinstance(request, ProduceRequest)
        results = []
        for part in request.topic_data[0].partition_data:
            assert part.records is not None
            code, offset = self.leaders[part.index].append(bytes(part.records))
            results.append(
                PartitionProduceResponse(index=part.index, error_code=code, base_offset=offset)
            )
        answer = TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=results)
        self.answers.append((call, ProduceResponse(responses=[answer])))

    def receive(self) -> None:
        if self.answers:
            call, answer = self.answers.popleft()
            self.sending.on_response(call, answer, self.clock.ms)

    def break_connection(self) -> None:
        lost = [call for call, _ in self.answers] + list(self.requests)
        self.answers.clear()
        self.requests.clear()
        for call in lost:
            self.sending.on_response(call, BrokerUnreachable("broken"), self.clock.ms)

    def wait(self, ms: float) -> None:
        self.clock.ms += ms
        self.sending.expire(self.clock.ms)

    def settle_everything(self) -> None:
        for leader in self.leaders:
            leader.busy = False
        for _ in range(3000):
            if self.sending.is_idle:
                return
            self.wait(50)
            self.drain()
            self.serve()
            self.receive()
        raise AssertionError("the producer does not come to rest")

    def check(self) -> None:
        for partition, leader in enumerate(self.leaders):
            sent = self.sent[partition]
            assert len(leader.log) == len(set(leader.log)), "a record was written twice"
            places = [sent.index(value) for value in leader.log]
            assert places == sorted(places), "records are out of order"
            for value in sent:
                outcome = self.outcomes[value]
                if isinstance(outcome, RecordMetadata):
                    assert leader.log[outcome.offset] == value
                elif outcome.code is not ErrorCode.UNKNOWN_SERVER_ERROR and not isinstance(
                    outcome, DeliveryTimedOut
                ):
                    assert value not in leader.log, f"refused ({outcome}) but written"


STEPS = st.lists(
    st.sampled_from(
        [
            ("send", 0),
            ("send", 0),
            ("send", 1),
            ("drain", 0),
            ("drain", 0),
            ("serve", 0),
            ("serve", 0),
            ("receive", 0),
            ("wait", 6),
            ("wait", 120),
            ("wait", 1100),
            ("break", 0),
            ("busy", 0),
        ]
    ),
    min_size=20,
    max_size=120,
)


# Batches of one record, mostly one after the other.
SLOW_STEPS = st.lists(
    st.sampled_from(
        [("send one", 0), ("wait", 6), ("drain", 0), ("serve", 0), ("receive", 0), ("break", 0)]
    ),
    min_size=20,
    max_size=120,
)


def play(run: Run, steps: list[tuple[str, int]]) -> None:
    for step, argument in steps:
        match step:
            case "send":
                for _ in range(BURST):
                    run.send(argument)
            case "send one":
                run.send(argument)
            case "drain":
                run.drain()
            case "serve":
                run.serve()
            case "receive":
                run.receive()
            case "wait":
                run.wait(argument)
            case "break":
                run.break_connection()
            case "busy":
                run.leaders[argument].busy ^= True


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, in_flight_max=st.integers(1, 5))
def test_every_record_is_written_once_and_in_order_over_breaking_connections(
    steps: list[tuple[str, int]], in_flight_max: int
) -> None:
    run = Run(in_flight_max)
    play(run, steps)
    run.settle_everything()
    run.check()
    assert all(isinstance(outcome, RecordMetadata) for outcome in run.outcomes.values())


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, victim=st.integers(0, 30))
def test_batches_that_are_too_large_come_apart_and_stay_in_order(
    steps: list[tuple[str, int]], victim: int
) -> None:
    run = Run(5)
    run.leaders[0].records_max = 1
    run.leaders[0].refuse = b"0-%d" % victim
    play(run, steps)
    run.settle_everything()
    run.check()
    refused = [v for v, told in run.outcomes.items() if not isinstance(told, RecordMetadata)]
    assert set(refused) <= {b"0-%d" % victim}


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, victim=st.integers(0, 30))
def test_a_refused_batch_takes_no_other_batch_with_it(
    steps: list[tuple[str, int]], victim: int
) -> None:
    run = Run(5)
    run.leaders[0].refuse = b"0-%d" % victim
    play(run, steps)
    run.settle_everything()
    run.check()
    assert b"0-%d" % victim not in run.leaders[0].log
    assert not any(isinstance(outcome, DeliveryTimedOut) for outcome in run.outcomes.values())


@settings(max_examples=100, deadline=None)
@given(steps=STEPS | SLOW_STEPS, victim=st.integers(0, 5), after_append=st.booleans())
def test_a_batch_that_may_have_been_written_takes_no_other_batch_with_it(
    steps: list[tuple[str, int]], victim: int, after_append: bool
) -> None:
    run = Run(5)
    run.leaders[0].stumble = b"0-%d" % victim
    run.leaders[0].stumbles_after_append = after_append
    play(run, steps)
    run.settle_everything()
    run.check()
    assert not any(isinstance(outcome, DeliveryTimedOut) for outcome in run.outcomes.values())


@settings(max_examples=100, deadline=None)
@given(before=STEPS, after=STEPS)
def test_records_given_up_after_their_time_leave_no_hole_and_no_double(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    run = Run(5, delivery_timeout_ms=30_000)
    play(run, before)
    run.wait(31_000)
    play(run, after)
    run.settle_everything()
    run.check()


@settings(max_examples=60, deadline=None)
@given(before=STEPS, after=STEPS)
def test_a_leader_that_forgot_the_producer_gets_the_rest_in_order(
    before: list[tuple[str, int]], after: list[tuple[str, int]]
) -> None:
    run = Run(5)
    play(run, before)
    run.settle_everything()
    for leader in run.leaders:
        leader.producers.clear()
    play(run, after)
    run.settle_everything()
    run.check()
    assert all(isinstance(outcome, RecordMetadata) for outcome in run.outcomes.values())
