"""The cluster, its brokers and their configs."""

import msgspec

import headrace
from headrace.client import (
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
)
from headrace.core.config_keys import ConfigSource
from headrace.web.call import HttpCall
from headrace.web.errors import BROKER_NOT_FOUND, HttpError
from headrace.web.operations import PROXY, Operations
from headrace.web.topics import ChangeQuery, config_changes

CLUSTER = Operations("cluster")


class Brokers(msgspec.Struct):
    """The numbers of all brokers."""

    brokers: list[int]


class Broker(msgspec.Struct):
    """One broker and the address that Kafka clients reach it by."""

    broker: int
    host: str
    port: int
    rack: str | None
    controller: bool


class Cluster(msgspec.Struct):
    """The cluster as a whole."""

    cluster_id: str
    controller: int
    brokers: list[Broker]
    headrace_version: str


class Config(msgspec.Struct):
    """One key, its value, and where that comes from; null where it is secret."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool


class ConfigsIn(msgspec.Struct, forbid_unknown_fields=True):
    """Keys to set; null takes one back to its default."""

    configs: dict[str, str | None]


@CLUSTER.get("/cluster", "The cluster and its brokers.", response=Cluster)
async def get_cluster(call: HttpCall) -> Cluster:
    found = await call.gateway.admin.describe_cluster()
    brokers = [
        Broker(each.node_id, each.host, each.port, each.rack, each.node_id == found.controller_id)
        for each in found.brokers
    ]
    return Cluster(found.cluster_id, found.controller_id, brokers, headrace.__version__)


@CLUSTER.get("/brokers", "The numbers of all brokers.", response=Brokers, **PROXY)
async def list_brokers(call: HttpCall) -> Brokers:
    found = await call.gateway.admin.describe_cluster()
    return Brokers(sorted(each.node_id for each in found.brokers))


@CLUSTER.get("/brokers/{broker}", "One broker.", response=Broker, errors=(404,))
async def get_broker(call: HttpCall) -> Broker:
    return await _broker(call)


@CLUSTER.get(
    "/brokers/{broker}/configs",
    "The configs of a broker.",
    response=list[Config],
    errors=(404,),
)
async def broker_configs(call: HttpCall) -> list[Config]:
    broker = await _broker(call)
    return await _configs(call, ConfigResource(ConfigResourceType.BROKER, str(broker.broker)))


@CLUSTER.patch(
    "/brokers/{broker}/configs",
    "Change configs of a broker while it runs.",
    query=ChangeQuery,
    body=ConfigsIn,
    response=list[Config],
    errors=(404, 422),
)
async def change_broker_configs(call: HttpCall) -> list[Config]:
    broker = await _broker(call)
    return await _change(call, ConfigResource(ConfigResourceType.BROKER, str(broker.broker)))


@CLUSTER.get(
    "/topics/{topic}/configs",
    "The configs of a topic.",
    response=list[Config],
    errors=(404, 422),
)
async def topic_configs(call: HttpCall) -> list[Config]:
    return await _configs(call, ConfigResource(ConfigResourceType.TOPIC, call.path["topic"]))


@CLUSTER.patch(
    "/topics/{topic}/configs",
    "Change configs of a topic.",
    query=ChangeQuery,
    body=ConfigsIn,
    response=list[Config],
    errors=(404, 422),
)
async def change_topic_configs(call: HttpCall) -> list[Config]:
    return await _change(call, ConfigResource(ConfigResourceType.TOPIC, call.path["topic"]))


async def _broker(call: HttpCall) -> Broker:
    number = call.number("broker")
    cluster = await get_cluster(call)
    for broker in cluster.brokers:
        if broker.broker == number:
            return broker
    raise HttpError(
        BROKER_NOT_FOUND, f"there is no broker {number}", hint="GET /brokers lists the brokers"
    )


async def _change(call: HttpCall, resource: ConfigResource) -> list[Config]:
    await call.gateway.admin.alter_configs(
        {resource: config_changes(call.body.configs)}, validate_only=call.query.dry_run
    )
    return await _configs(call, resource)


async def _configs(call: HttpCall, resource: ConfigResource) -> list[Config]:
    found = (await call.gateway.admin.describe_configs([resource]))[resource]
    return [_config(found[name]) for name in sorted(found)]


def _config(entry: ConfigEntry) -> Config:
    value = None if entry.is_sensitive else entry.value
    source = ConfigSource(entry.source).name.lower()
    return Config(entry.name, value, source, entry.is_default, entry.is_read_only)
