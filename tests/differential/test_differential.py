"""Every advertised request in every version, to Apache Kafka and to Headrace: the same answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headrace.protocol.api_keys import APIS
from headrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.differential import (
    script_cluster,
    script_configs,
    script_consumer_groups,
    script_fetch,
    script_group_offsets,
    script_groups,
    script_migration,
    script_offsets,
    script_produce,
    script_rebalances,
    script_sequences,
    script_topics,
)
from tests.differential.compare import differences
from tests.differential.compatibility import allowed
from tests.differential.peer import Peer, Step
from tests.differential.scripts import SCRIPTS
from tests.support.brokers import ApacheKafka, BrokerProcess, HeadraceProcess
from tests.support.groups import required
from tests.support.headlines import Headline
from tests.support.kafka_tools import KafkaTools

_MODULES = (
    script_produce,
    script_fetch,
    script_offsets,
    script_topics,
    script_configs,
    script_cluster,
    script_groups,
    script_group_offsets,
    script_rebalances,
    script_sequences,
    script_consumer_groups,
    script_migration,
)
# The node id is set on both, so that both report it as set and not as a default; the scripts write
# records of long ago, which retention would take away. A first member is not made to wait.
_SETTINGS = {
    "node.id": "0",
    "log.retention.ms": "-1",
    "group.initial.rebalance.delay.ms": "0",
}
_GOOD_REQUESTS = 3


# All tests of this module look at one run of the scripts: on one worker.
pytestmark = pytest.mark.xdist_group("differential")


class Comparison:
    """Both transcripts and what differs between them."""

    def __init__(self, kafka: list[Step], headrace: list[Step], advertised: set[tuple[int, int]]):
        self.steps = headrace
        self.advertised = advertised
        self.differences = differences(kafka, headrace)
        self.good = Counter((step.api, step.version) for step in kafka if step.good)


def run_scripts(broker: BrokerProcess) -> Peer:
    """Every script against one broker, the restart last."""
    peer = Peer(broker)
    for name, script in SCRIPTS.items():
        peer.script = name
        script(peer)
        peer.disconnect()
    return peer


def _advertised(broker: BrokerProcess) -> dict[int, tuple[int, int]]:
    peer = Peer(broker)
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = peer.quietly(request, 3, ApiVersionsResponse)
    peer.disconnect()
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Comparison]:
    tools = required(KafkaTools)
    directory: Path = tmp_path_factory.mktemp("differential")
    kafka = ApacheKafka(directory / "kafka", _SETTINGS, tools=tools)
    ours = HeadraceProcess(directory / "headrace", _SETTINGS)
    try:
        kafka.launch()
        ours.start()
        advertised = _advertised(ours)
        kafka.wait_until_ready()
        with ThreadPoolExecutor(2) as pool:
            theirs, own = pool.map(run_scripts, (kafka, ours))
        pairs = {
            (key, version)
            for key, (low, high) in advertised.items()
            for version in range(low, high + 1)
        }
        yield Comparison(theirs.steps, own.steps, pairs)
    finally:
        for broker in (kafka, ours):
            broker.kill()


def test_no_answer_differs_without_a_listed_reason(
    comparison: Comparison, headline: Headline
) -> None:
    rows = allowed()
    unlisted = [
        difference
        for difference in comparison.differences
        if not any(row.covers(difference) for row in rows)
    ]
    assert not unlisted, "\n" + "\n".join(str(each) for each in unlisted)
    ranges = {api.name: range(api.lowest_version, api.highest_version + 1) for api in APIS.values()}
    asked = {(step.api, step.version) for step in comparison.steps}
    pairs = {(api, version) for api, version in asked if version in ranges.get(api, ())}
    differing = {(each.script, each.label, each.version) for each in comparison.differences}
    headline(
        f"differential: {len(comparison.steps)} (request, version) pairs compared with Apache "
        f"Kafka over {len(pairs)} (API, version) pairs; {len(differing)} differ, each for a "
        "reason listed in docs/compatibility.md"
    )


def test_every_listed_difference_is_still_there(comparison: Comparison) -> None:
    stale = [
        row
        for row in allowed()
        if not any(row.covers(difference) for difference in comparison.differences)
    ]
    assert not stale, f"listed in docs/compatibility.md but not seen: {stale}"


def test_every_advertised_version_was_asked_three_good_questions(comparison: Comparison) -> None:
    missing = [
        (APIS[key].name, version, comparison.good[APIS[key].name, version])
        for key, version in sorted(comparison.advertised)
        if version >= APIS[key].lowest_version
        and comparison.good[APIS[key].name, version] < _GOOD_REQUESTS
    ]
    assert not missing, f"too few good requests: {missing}"


def test_all_script_modules_are_in_use() -> None:
    modules = {script.__module__ for script in SCRIPTS.values()}
    assert modules == {module.__name__ for module in _MODULES}
