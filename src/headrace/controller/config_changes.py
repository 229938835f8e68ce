"""Decisions about configs: replace them all (legacy) or alter them key by key.

Both forms come to the same thing: the configs a resource would have afterwards, checked as a
whole, and records for the keys that differ from now.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import TypeVar

from headrace.controller.commands import (
    AlterConfigOp,
    AlterConfigs,
    ConfigAlteration,
    ConfigsToAlter,
    ConfigsToReplace,
    IncrementalAlterConfigs,
)
from headrace.controller.decision_context import DecisionContext, message_of
from headrace.core.broker_configs import BROKER_KEYS, validate_dynamic
from headrace.core.config_keys import ConfigKey, ConfigType, format_value
from headrace.core.config_resources import ConfigResource, ConfigResourceType
from headrace.core.errors import ApiError, ErrorCode, InvalidConfig
from headrace.core.group_configs import GROUP_KEYS
from headrace.core.group_configs import validate as validate_group
from headrace.core.topic_configs import TOPIC_KEYS, validate_together
from headrace.machine.interface import Decision
from headrace.metadata.image import NO_CONFIGS, Image
from headrace.metadata.names import name_problem
from headrace.metadata.records import ConfigRecord, MetadataRecord

Change = TypeVar("Change", ConfigsToReplace, ConfigsToAlter)
Values = Mapping[str, str]


class AlterConfigOpType(IntEnum):
    """What to do with a key; values as on the wire."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_KEYS: Mapping[ConfigResourceType, Mapping[str, ConfigKey]] = {
    ConfigResourceType.TOPIC: TOPIC_KEYS,
    ConfigResourceType.BROKER: BROKER_KEYS,
    ConfigResourceType.GROUP: GROUP_KEYS,
}


def alter_configs(
    image: Image, command: AlterConfigs, context: DecisionContext
) -> Decision[MetadataRecord, tuple[ConfigAlteration, ...]]:
    """Each resource's configs become exactly those given; a key left out goes to its default."""
    return _alter(image, command.resources, command.validate_only, context, _replaced)


def incremental_alter_configs(
    image: Image, command: IncrementalAlterConfigs, context: DecisionContext
) -> Decision[MetadataRecord, tuple[ConfigAlteration, ...]]:
    """Only the keys named change; lists can grow and shrink by items."""
    return _alter(image, command.resources, command.validate_only, context, _altered)


def _alter(
    image: Image,
    changes: Sequence[Change],
    validate_only: bool,
    context: DecisionContext,
    outcome: Callable[[Change, ConfigResource, Values], Values],
) -> Decision[MetadataRecord, tuple[ConfigAlteration, ...]]:
    times = Counter((change.resource_type, change.resource_name) for change in changes)
    records: list[MetadataRecord] = []
    results: list[ConfigAlteration] = []
    for change in changes:
        named = (change.resource_type, change.resource_name)
        try:
            if times[named] > 1:
                raise _bad_request("Each resource must appear at most once.")
            records += _resource_records(image, change, context, outcome)
        except ApiError as refusal:
            results.append(ConfigAlteration(*named, refusal.code, message_of(refusal)))
        else:
            results.append(ConfigAlteration(*named))
    return Decision(tuple(results), () if validate_only else records)


def _resource_records(
    image: Image,
    change: Change,
    context: DecisionContext,
    outcome: Callable[[Change, ConfigResource, Values], Values],
) -> list[MetadataRecord]:
    resource = _resource(change)
    current = image.configs.get(resource, NO_CONFIGS)
    values = outcome(change, resource, current)
    if resource.type is ConfigResourceType.TOPIC:
        _check_topic(image, resource.name, values, context)
    elif resource.type is ConfigResourceType.GROUP:
        _check_group(image, resource.name, values, context)
    else:
        _check_broker(image, resource.name, values, current, context)
    return list(_differences(resource, current, values))


def _resource(change: ConfigsToReplace | ConfigsToAlter) -> ConfigResource:
    # Loggers and client metrics have no configs here, so they are no resources yet.
    if change.resource_type not in _KEYS:
        raise _bad_request(f"Unknown resource type {change.resource_type}")
    return ConfigResource(ConfigResourceType(change.resource_type), change.resource_name)


def _differences(
    resource: ConfigResource, current: Values, values: Values
) -> Iterator[MetadataRecord]:
    for name in (*values, *(name for name in current if name not in values)):
        if values.get(name) != current.get(name):
            yield ConfigRecord(
                resource_type=resource.type,
                resource_name=resource.name,
                name=name,
                value=values.get(name),
            )


def _replaced(change: ConfigsToReplace, _: ConfigResource, __: Values) -> Values:
    _check_keys(change.configs)
    return {name: value for name, value in change.configs if value is not None}


def _altered(change: ConfigsToAlter, resource: ConfigResource, current: Values) -> Values:
    _check_keys(
        (op.name, "" if op.operation == AlterConfigOpType.DELETE else op.value)
        for op in change.operations
    )
    values = dict(current)
    for operation in change.operations:
        _operate(operation, resource, values)
    return values


def _check_keys(keys: Iterable[tuple[str, str | None]]) -> None:
    given = list(keys)
    if len({name for name, _ in given}) < len(given):
        raise _bad_request("Error due to duplicate config keys")
    nulls = [name for name, value in given if value is None]
    if nulls:
        raise _bad_request(f"Null value not supported for : {', '.join(nulls)}")


def _operate(change: AlterConfigOp, resource: ConfigResource, values: dict[str, str]) -> None:
    if change.operation == AlterConfigOpType.DELETE:
        values.pop(change.name, None)
        return
    assert change.value is not None, "checked together with the other keys"
    if change.operation == AlterConfigOpType.SET:
        values[change.name] = change.value
    elif change.operation in (AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT):
        operation = AlterConfigOpType(change.operation)
        items = _list_items(operation, resource, change.name, values.get(change.name))
        named = change.value.split(",")
        values[change.name] = ",".join(
            _without(items, named)
            if operation is AlterConfigOpType.SUBTRACT
            else _with(items, named)
        )
    else:
        raise _bad_request(f"Unknown operations type {change.operation}")


def _list_items(
    operation: AlterConfigOpType, resource: ConfigResource, name: str, value: str | None
) -> list[str]:
    """The items a list has now; one that was never set starts from its default."""
    known = _KEYS[resource.type].get(name)
    if known is None or known.type is not ConfigType.LIST:
        raise InvalidConfig(_no_list(operation, resource.type, name, known))
    text = format_value(known.default) if value is None else value
    return [item for item in (text or "").split(",") if item]


def _no_list(
    operation: AlterConfigOpType, type: ConfigResourceType, name: str, known: ConfigKey | None
) -> str:
    if type is not ConfigResourceType.BROKER:
        return f"Can't {operation.name} to key {name} because its type is not LIST."
    if known is None:
        return f"Unknown config name: {name}"
    return f"Config value {operation.name.lower()} is not allowed for config key: {name}"


def _check_topic(image: Image, name: str, values: Values, context: DecisionContext) -> None:
    if name == "":
        raise _bad_request("Default topic resources are not allowed.")
    problem = name_problem(name)
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    validate_together(values, context.config(image))
    if name not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


def _check_group(image: Image, name: str, values: Values, context: DecisionContext) -> None:
    """A group need not exist to have configs: it finds them when it is founded."""
    if name == "":
        raise _bad_request("Default group resources are not allowed.")
    validate_group(values, context.config(image))


def _check_broker(
    image: Image, name: str, values: Values, current: Values, context: DecisionContext
) -> None:
    """Only this broker, or the default of all; only keys that take effect while it runs."""
    if name:
        try:
            node_id = int(name)
        except ValueError:
            raise _bad_request(f"Node id must be an integer, but it is: {name}") from None
        if node_id != context.node_id:
            raise _bad_request(
                f"Unexpected broker id, expected {context.node_id}, but received {name}"
            )
    changes = {key: value for key, value in values.items() if value != current.get(key)}
    validate_dynamic(changes, for_all_brokers=not name)
    context.config_after(image, name, values).check_together()


def _bad_request(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _with(items: list[str], added: list[str]) -> list[str]:
    """Each new one once, behind those that are there."""
    known = set(items)
    return items + [item for item in dict.fromkeys(added) if item not in known]


def _without(items: list[str], removed: list[str]) -> list[str]:
    """For each one named, its first occurrence goes."""
    to_go = Counter(removed)
    kept = []
    for item in items:
        if to_go[item]:
            to_go[item] -= 1
        else:
            kept.append(item)
    return kept
