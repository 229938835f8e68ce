"""What a consumer says on stderr: once when something is wrong, once when it is over."""

import pytest

from headrace.cli.watching import PATIENCE_SECONDS, Watch
from headrace.client import BrokerUnreachable


def test_a_lost_broker_is_told_once_and_so_is_its_return(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = Watch()
    lost = BrokerUnreachable("gone")
    for trouble in (None, lost, lost, None, None):
        watch.broker(trouble)
    assert capsys.readouterr().err == (
        "headrace: broker lost, trying again: gone\nheadrace: back again\n"
    )


def test_a_member_that_waits_for_partitions_says_so_once_per_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [100.0]
    watch = Watch(lambda: now[0])
    watch.group("g", has_partitions=False)
    now[0] += PATIENCE_SECONDS - 0.1
    watch.group("g", has_partitions=False)
    assert capsys.readouterr().err == ""
    now[0] += 0.2
    watch.group("g", has_partitions=False)
    watch.group("g", has_partitions=False)
    assert capsys.readouterr().err.count("waiting for the group") == 1
    watch.group("g", has_partitions=True)
    watch.group("g", has_partitions=False)
    now[0] += PATIENCE_SECONDS
    watch.group("g", has_partitions=False)
    assert "waiting for the group" in capsys.readouterr().err
