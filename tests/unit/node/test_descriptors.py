"""The limit of open files is divided: nobody takes what the log needs."""

import pytest

from headrace.broker.listener import ConnectionQuotas
from headrace.core.keys.server import ServerKeys
from headrace.node.descriptors import divide


@pytest.mark.parametrize("limit", [128, 256, 1_024, 4_096, 65_536, 1 << 20])
def test_what_is_given_away_leaves_a_reserve(limit: int) -> None:
    shares = divide(limit)
    assert min(shares) >= 1
    assert limit - sum(shares) >= 32


@pytest.mark.parametrize("limit", [0, 1, 16, 64])
def test_even_a_tiny_limit_leaves_everybody_something(limit: int) -> None:
    assert min(divide(limit)) >= 1


def test_connections_end_where_the_descriptors_of_the_log_begin() -> None:
    count = ConnectionQuotas(ServerKeys, descriptors_max=2)
    assert [count.acquire("a"), count.acquire("b")] == [None, None]
    refused = count.acquire("c")
    assert refused is not None
    assert "ulimit" in refused
    count.release("a")
    assert count.acquire("c") is None
