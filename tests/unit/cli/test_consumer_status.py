"""What a consumer says on stderr: once when something is wrong, once when it is over."""

import pytest

from headrace.cli.consumer_status import NOTICE_SECONDS, ConsumerStatus
from headrace.client import BrokerUnreachable


def test_a_lost_broker_is_told_once_and_so_is_its_return(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watch = ConsumerStatus()
    lost = BrokerUnreachable("gone")
    for trouble in (None, lost, lost, None, None):
        watch.report_broker(trouble)
    assert capsys.readouterr().err == (
        "headrace: broker lost, trying again: gone\nheadrace: back again\n"
    )


def test_a_member_that_waits_for_partitions_says_so_once_per_wait(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [100.0]
    watch = ConsumerStatus(lambda: now[0])
    watch.report_group("g", has_partitions=False)
    now[0] += NOTICE_SECONDS - 0.1
    watch.report_group("g", has_partitions=False)
    assert capsys.readouterr().err == ""
    now[0] += 0.2
    watch.report_group("g", has_partitions=False)
    watch.report_group("g", has_partitions=False)
    assert capsys.readouterr().err.count("waiting for the group") == 1
    watch.report_group("g", has_partitions=True)
    watch.report_group("g", has_partitions=False)
    now[0] += NOTICE_SECONDS
    watch.report_group("g", has_partitions=False)
    assert "waiting for the group" in capsys.readouterr().err
