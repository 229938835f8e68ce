"""Requests are counted, timed, and told about when they are slow or traced."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from headrace.broker.metering import SLOW_LINES_PER_SECOND, ApiMetrics, RequestMetrics
from headrace.broker.request import RequestOrigin
from headrace.broker.response_errors import errors_counter
from headrace.core.errors import ErrorCode
from headrace.protocol.api_keys import APIS, ApiKey, response_class
from headrace.protocol.frames import RequestHeader
from headrace.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.security.principal import ANONYMOUS

LOGGER = "headrace.broker.metering"


ORIGIN = RequestOrigin(ANONYMOUS, "/192.0.2.1", "PLAINTEXT")


@dataclass
class Request:
    """What a meter looks at of a request."""

    header: RequestHeader
    started: float
    size: int = 123
    origin: RequestOrigin = ORIGIN


class Clock:
    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def serve(
    clock: Clock, meter: ApiMetrics, seconds: float, api_key: int = 0, error: int = 0
) -> None:
    header = RequestHeader(api_key, 9, 4711, "my client", 0)
    request = Request(header, clock.seconds)
    clock.seconds += seconds
    partition = PartitionProduceResponse(index=0, base_offset=0, error_code=ErrorCode(error))
    topic = TopicProduceResponse(name="t", partition_responses=[partition])
    meter.count_request(request, ProduceResponse(responses=[topic]))


@pytest.fixture(autouse=True)
def _level_restored() -> Iterator[None]:
    yield
    logging.getLogger(LOGGER).setLevel(logging.NOTSET)


def test_requests_and_their_errors_are_counted_per_api() -> None:
    clock = Clock()
    meters = RequestMetrics(clock)
    serve(clock, meters.for_api(ApiKey.PRODUCE), 0.0015)
    serve(clock, meters.for_api(ApiKey.PRODUCE), 0.25, error=ErrorCode.CORRUPT_MESSAGE)
    serve(clock, meters.for_api(ApiKey.FETCH), 0.1)
    produce, fetch = sorted(meters, key=lambda meter: meter.api, reverse=True)
    assert (produce.api, produce.times.count, produce.errors) == ("Produce", 2, {2: 1})
    assert produce.times.total == pytest.approx(0.2515)
    assert (fetch.api, fetch.times.count, fetch.errors) == ("Fetch", 1, {})


def test_every_error_of_an_answer_counts() -> None:
    counts: dict[int, int] = {}
    partitions = [
        PartitionData(partition_index=0, high_watermark=0, error_code=ErrorCode(code))
        for code in (0, 1, 3, 1)
    ]
    topic = FetchableTopicResponse(topic="t", partitions=partitions)
    answer = FetchResponse(error_code=ErrorCode(71), responses=[topic])
    errors_counter(FetchResponse)(answer, counts)
    assert counts == {71: 1, 1: 2, 3: 1}


def test_errors_of_every_answer_can_be_counted() -> None:
    for api_key in APIS:
        errors_counter(response_class(api_key))


def test_a_slow_request_leaves_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    meters = RequestMetrics(clock)
    meters.set_slow_threshold(200)
    meter = meters.for_api(ApiKey.PRODUCE)
    serve(clock, meter, 0.199)
    assert caplog.records == []
    serve(clock, meter, 0.3)
    [line] = caplog.records
    assert (line.levelname, meters.slow_requests) == ("WARNING", 1)
    assert line.getMessage() == (
        "slow request: api=Produce version=9 correlation_id=4711 client_id=my client"
        " client=/192.0.2.1 principal=User:ANONYMOUS duration_ms=300.000 bytes=123"
    )


def test_with_slow_off_nothing_is_slow(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    meters = RequestMetrics(clock)
    meters.set_slow_threshold(None)
    serve(clock, meters.for_api(ApiKey.PRODUCE), 1000)
    assert caplog.records == []


def test_a_flood_of_slow_requests_is_told_in_a_few_lines(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    meters = RequestMetrics(clock)
    meters.set_slow_threshold(0)
    meter = meters.for_api(ApiKey.PRODUCE)
    for _ in range(500):
        serve(clock, meter, 0.001)
    assert len(caplog.records) == SLOW_LINES_PER_SECOND
    clock.seconds += 1
    serve(clock, meter, 0.001)
    assert f"requests={500 - SLOW_LINES_PER_SECOND}" in caplog.text
    assert meters.slow_requests == 501


def test_tracing_follows_the_level_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    meters = RequestMetrics(clock)
    meters.set_slow_threshold(1000)
    join = meters.for_api(ApiKey.JOIN_GROUP)
    caplog.set_level(logging.DEBUG, LOGGER)
    meters.update_log_level()
    serve(clock, join, 0.0, ApiKey.JOIN_GROUP)
    serve(clock, meters.for_api(ApiKey.PRODUCE), 0.0)
    assert [(line.levelname, "correlation_id=4711" in line.getMessage()) for line in caplog.records]
    assert len(caplog.records) == 2
    caplog.set_level(logging.INFO, LOGGER)
    meters.update_log_level()
    serve(clock, join, 0.0)
    assert len(caplog.records) == 2
