"""The HTTP API takes time and chance as they are given to it."""

from uuid import UUID

from headrace.web.host_origin_filter import DateHeader
from headrace.web.instances import new_name


class Clock:
    ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> float:
        return float(self.ms)


class Randomness:
    def uuid(self) -> UUID:
        return UUID(int=7)

    def random(self) -> float:
        return 0.0


def test_the_date_of_responses_is_the_clocks() -> None:
    clock, headers = Clock(), list[tuple[bytes, bytes]]()
    date = DateHeader(headers, clock)
    clock.ms = 1_700_000_000_999
    date.refresh()
    assert headers == [(b"date", b"Tue, 14 Nov 2023 22:13:20 GMT")]
    clock.ms += 1
    date.refresh()
    assert headers == [(b"date", b"Tue, 14 Nov 2023 22:13:21 GMT")]


def test_an_instance_without_a_name_gets_one_by_the_given_chance() -> None:
    assert new_name(Randomness()) == "rest-consumer-00000000-0000-0000-0000-000000000007"
