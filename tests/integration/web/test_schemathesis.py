"""Every route called with made-up input: answers as documented, and never a server error."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headrace.web.app import OPERATIONS
from headrace.web.openapi import document
from tests.support.web import local_web

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
EXAMPLES = 300 if os.environ.get("HEADRACE_TEST_LONG") else 8
# Half of the calls are about things that exist, so that they come further than the first check.
EXISTING = {"topic": "orders", "group": "workers", "instance": "one", "partition": 0, "broker": 0}
WAIT_MS_MAX = 20


@schemathesis.serializer("application/x-ndjson")
def lines(_: Any, value: Any) -> bytes:
    """A stream of lines is made up as any text."""
    return str(value).encode("utf-8", "surrogatepass")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with local_web() as web:
        web.broker.create_topic("orders", partitions=2)
        web.ask("POST", "/topics/orders", json={"records": [{"value": 1}, {"value": 2}]})
        web.ask("POST", "/consumers/workers", json={"name": "one"})
        yield web.url


# The very document that /openapi.json hands out.
schema = schemathesis.openapi.from_dict(document(OPERATIONS))


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_input_is_too_odd(case: "schemathesis.Case[Any]", url: str) -> None:
    _steer(case)
    # The seconds are for our own mistakes: nothing here may take so long.
    case.call_and_validate(base_url=url, checks=CHECKS, timeout=20)


def _steer(case: "schemathesis.Case[Any]") -> None:
    """Towards things that exist, away from calls that wait on purpose."""
    query = case.query or {}
    if "timeout" in query:
        query["timeout"] = min(_number(query["timeout"]), WAIT_MS_MAX)
    streams = case.path.endswith("/stream")
    deletes = case.method == "DELETE" and case.path in ("/topics/{topic}", "/groups/{group}")
    parameters = case.path_parameters or {}
    chosen = sum(map(ord, repr((parameters, query, case.headers))))
    if streams:  # of a topic that exists, it would never end
        case.path_parameters = {"topic": f"no-{parameters['topic']}"}
    elif chosen % 2 and not deletes:
        case.path_parameters = {
            name: EXISTING.get(name, value) for name, value in parameters.items()
        }
    if case.path.endswith("/configs") and case.method == "PATCH":
        query["dry_run"] = "true"
    case.query = query


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return WAIT_MS_MAX
