"""A class name means one thing: packages share one only where there is a reason."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "headrace"

# Messages and stored records have Kafka's names; nobody looks for one without its API or topic.
NOT_COMPARED = ("protocol/messages/", "protocol/schemas/")
RESPONSES_OVER_HTTP = "what GET answers, by the name that the OpenAPI document gives it"
SHARED = {
    "Batch": "records on their way; in a pipeline, a batch of Spark",
    "Broker": f"the one in a test's process; {RESPONSES_OVER_HTTP}",
    "BrokerConnection": "for asyncio; for blocking code",
    "Cluster": f"the client's metadata, as in Kafka's own client; {RESPONSES_OVER_HTTP}",
    "Command": "of a replicated state machine; of the text protocol",
    "ConfigEntry": "as a broker knows it; as a client is told it",
    "Decision": "of a replicated state machine; of a consumer group",
    "FetchSession": "KIP-227 has one at either end",
    "Findings": "of `headrace log verify`; of a pipeline's file",
    "Partition": f"a replica; {RESPONSES_OVER_HTTP}",
    "Range": "valid values of a key; offsets of a Spark task",
    "Sender": "of responses; of a producer's batches, as in Kafka's own client",
    "Subscription": "of a client's member; of a Spark source; a request over HTTP",
    "Timers": "of a coordinator; of the members of a group",
    "Topic": f"in an image; {RESPONSES_OVER_HTTP}",
}


def test_a_class_name_is_used_by_one_package() -> None:
    packages: dict[str, set[str]] = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE).as_posix()
        if where.startswith(NOT_COMPARED):
            continue
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                packages[node.name].add(where.partition("/")[0])
    shared = {name: sorted(found) for name, found in packages.items() if len(found) > 1}
    assert {name: found for name, found in shared.items() if name not in SHARED} == {}
    assert [name for name in SHARED if name not in shared] == [], "take them off the list"
