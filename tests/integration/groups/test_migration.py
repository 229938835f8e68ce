"""A live group of librdkafka members goes to the new protocol and back, one member at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.integration.groups.conftest import FilledMaker
from tests.support.brokers import BrokerProcess
from tests.support.group_members import Member, members_closed, poll_until, until_shared
from tests.support.records import fill

MemberMaker = Callable[..., Member]
classic_styles = pytest.mark.parametrize("style", ["eager", "cooperative"])


@pytest.fixture
def member(broker: BrokerProcess) -> Iterator[MemberMaker]:
    with members_closed() as make:
        yield lambda *arguments, **settings: make(broker.bootstrap_servers, *arguments, **settings)


@classic_styles
def test_a_group_is_upgraded_member_by_member_and_reads_every_record_once(
    broker: BrokerProcess, filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(4, 5)
    old = [member(group, [topic], style), member(group, [topic], style)]
    until_shared(4, *old)
    poll_until(lambda: sum(len(each.read) for each in old) >= 20, "the first records", *old)
    everybody = list(old)
    working = list(old)
    for leaving in old:
        working.append(member(group, [topic], "broker"))
        everybody.append(working[-1])
        until_shared(4, *working)
        leaving.close()  # commits what it has read
        working.remove(leaving)
        until_shared(4, *working)
    fill(broker.bootstrap_servers, topic, 4, 5, first=5)
    poll_until(lambda: sum(len(each.read) for each in everybody) >= 40, "the rest", *working)
    read = [place for each in everybody for place in each.read]
    assert sorted(set(read)) == [(topic, n, offset) for n in range(4) for offset in range(10)]
    assert len(read) == len(set(read)), "a record was read twice"


@classic_styles
def test_a_group_goes_back_when_its_last_new_member_leaves(
    broker: BrokerProcess, filled: FilledMaker, member: MemberMaker, group: str, style: str
) -> None:
    topic = filled(4, 5)
    new = member(group, [topic], "broker")
    until_shared(4, new)
    poll_until(lambda: len(new.read) == 20, "the first records", new)
    old = [member(group, [topic], style), member(group, [topic], style)]
    until_shared(4, new, *old)
    new.close()
    until_shared(4, *old)
    fill(broker.bootstrap_servers, topic, 4, 5, first=5)
    poll_until(lambda: sum(len(each.read) for each in (new, *old)) >= 40, "the rest", *old)
    assert sorted(set(new.read + old[0].read + old[1].read)) == [
        (topic, n, offset) for n in range(4) for offset in range(10)
    ]
    until_shared(4, *old)
    late = member(group, [topic], style)  # a classic rebalance, with a leader among the members
    until_shared(4, late, *old)
