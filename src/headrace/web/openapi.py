"""The OpenAPI 3.1 document, made from the declarations that requests are served by."""

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

import headrace
from headrace.web import media
from headrace.web.call import INT32_MAX, PATH_PARAMETERS
from headrace.web.errors import ErrorBody
from headrace.web.operations import HEADERS, Operation

# What any route may be refused with: the filter of hosts, the limits of the listener, the query,
# the answer's type, a time-out while waiting for the body.
_ALWAYS: Final = (400, 403, 405, 406, 408, 422, 431, 500, 503)
_WITH_BODY: Final = (413, 415)
_NAMES: Final = re.compile(r"\{(\w+)\}")
_REF: Final = "#/components/schemas/{name}"


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole document as plain values."""
    declared = list(operations)
    schemas, components = _schemas(declared)
    paths: dict[str, dict[str, Any]] = {}
    for operation in declared:
        entry = _operation(operation, schemas, components)
        paths.setdefault(operation.path, {})[operation.method.lower()] = entry
    used = {name for each in declared for name in [each.query.__name__]}
    shown = {name: schema for name, schema in components.items() if name not in used}
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Headrace",
            "version": headrace.__version__,
            "description": "Produce, read, consume and administer over HTTP.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {"schemas": shown},
    }


def _schemas(operations: Sequence[Operation]) -> tuple[dict[Any, Any], dict[str, Any]]:
    kinds: list[Any] = [ErrorBody]
    for operation in operations:
        for kind in (operation.body, *_response_types(operation), operation.query):
            if kind is not None and kind not in kinds:
                kinds.append(kind)
    made, components = msgspec.json.schema_components(kinds, ref_template=_REF)
    return dict(zip(map(_key, kinds), made, strict=True)), components


def _response_types(operation: Operation) -> tuple[Any, ...]:
    types = operation.response
    return types if isinstance(types, tuple) else (types,)


def _key(kind: Any) -> Any:
    return repr(kind)


def _operation(
    operation: Operation, schemas: dict[Any, Any], components: dict[str, Any]
) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": operation.handler.__name__,
        "summary": operation.summary,
        "tags": [operation.tag],
    }
    parameters = [
        *_path_parameters(operation),
        *_query_parameters(operation, components),
        *_header_parameters(operation),
    ]
    if parameters:
        entry["parameters"] = parameters
    if operation.body is not None:
        entry["requestBody"] = _request_body(operation, schemas)
    entry["responses"] = _responses(operation, schemas)
    return entry


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    found = []
    for name in _NAMES.findall(operation.path):
        known = PATH_PARAMETERS[name]
        schema: dict[str, Any] = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}
        if known.is_number:
            schema = {"type": "integer", "minimum": 0, "maximum": INT32_MAX}
        found.append(
            {
                "name": name,
                "in": "path",
                "required": True,
                "description": known.description,
                "schema": schema,
            }
        )
    return found


def _query_parameters(operation: Operation, components: dict[str, Any]) -> list[dict[str, Any]]:
    schema = components[operation.query.__name__]
    required = schema.get("required", ())
    found = []
    for name, field in schema.get("properties", {}).items():
        plain = _without_null(field)
        parameter: dict[str, Any] = {"name": name, "in": "query", "schema": plain}
        if "description" in plain:
            parameter["description"] = plain.pop("description")
        if name in required:
            parameter["required"] = True
        found.append(parameter)
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A query cannot say null: what may be null may be left out."""
    kept = dict(schema)
    choices = kept.pop("anyOf", None)
    if choices is not None:
        kept |= next(each for each in choices if each.get("type") != "null")
    if kept.get("default", ...) is None:
        del kept["default"]
    return kept


def _header_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "header",
            "description": HEADERS[name],
            "schema": {"type": "string", "minLength": 1, "maxLength": 255},
        }
        for name in operation.headers
    ]


def _request_body(operation: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    schema = schemas[_key(operation.body)]
    content: dict[str, Any] = {}
    for name in operation.consumes:
        lines = {"schema": {"type": "string", "description": "One record on each line, as JSON."}}
        content[name] = lines if name == media.NDJSON else {"schema": schema}
    return {"required": operation.body_required, "content": content}


def _responses(operation: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    if operation.response is None:
        responses[str(operation.status)] = {"description": "Done."}
    else:
        choices = [schemas[_key(kind)] for kind in _response_types(operation)]
        schema = choices[0] if len(choices) == 1 else {"anyOf": choices}
        content = {}
        for name in operation.produces:
            is_json = name.endswith("json") and name != media.NDJSON
            bare = name.partition(";")[0]
            content[bare] = {"schema": schema if is_json else {"type": "string"}}
        responses[str(operation.status)] = {"description": operation.summary, "content": content}
    refused = {"application/json": {"schema": schemas[_key(ErrorBody)]}}
    more = _WITH_BODY if operation.body is not None else ()
    for status in sorted({*_ALWAYS, *more, *operation.errors}):
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": refused}
    return responses
