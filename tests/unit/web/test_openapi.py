"""The document is made from the declarations, and names everything they name."""

import json
import re
from typing import Any

from headrace.web.app import OPERATIONS
from headrace.web.call import PATH_PARAMETERS
from headrace.web.openapi import document

DOCUMENT = document(OPERATIONS)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method, path, entry)
        for path, methods in DOCUMENT["paths"].items()
        for method, entry in methods.items()
    ]


def test_every_operation_is_in_it_once() -> None:
    assert len(operations()) == len(OPERATIONS)
    names = [entry["operationId"] for _, _, entry in operations()]
    assert len(set(names)) == len(names)


def test_every_reference_leads_somewhere() -> None:
    wanted = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(DOCUMENT)))
    assert wanted <= set(DOCUMENT["components"]["schemas"])
    assert len(wanted) > 15


def test_every_path_parameter_is_declared() -> None:
    for _, path, entry in operations():
        inside = set(re.findall(r"{(\w+)}", path))
        declared = {each["name"] for each in entry.get("parameters", ()) if each["in"] == "path"}
        assert inside == declared <= set(PATH_PARAMETERS)


def test_a_query_cannot_say_null() -> None:
    for _, _, entry in operations():
        for parameter in entry.get("parameters", ()):
            assert "null" not in json.dumps(parameter["schema"])


def test_errors_are_described_everywhere() -> None:
    for _, _, entry in operations():
        for status, answer in entry["responses"].items():
            if int(status) >= 400:
                schema = answer["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/ErrorBody"}


def test_routes_that_bound_what_they_keep_say_that_it_can_be_full() -> None:
    kept = {"to_topic", "to_partition", "create_instance", "read_records", "stream_topic"}
    told = {entry["operationId"] for _, _, entry in operations() if "429" in entry["responses"]}
    assert told == kept
