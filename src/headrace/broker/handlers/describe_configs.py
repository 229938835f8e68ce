"""DescribeConfigs: every key of a topic, broker or group, with where its value comes from.

An answer is much longer than its question, so the same question is answered once.
"""

from collections.abc import Iterable

from headrace.broker.config_resources import authorize
from headrace.broker.request import RequestContext
from headrace.broker.routes import handles
from headrace.broker.time_slice import in_time_slices
from headrace.core import group_configs, topic_configs
from headrace.core.config_keys import ConfigEntry
from headrace.core.config_resources import ConfigResourceType
from headrace.core.errors import ApiError, ErrorCode, HeadraceError
from headrace.metadata.names import name_problem
from headrace.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from headrace.security.authorizer import AclOperation


@handles(DescribeConfigsRequest)
async def describe_configs(
    ctx: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe each resource; a bad one is a value in the answer."""
    questions = _once(request.resources)
    return DescribeConfigsResponse(
        results=[
            _describe(ctx, request, resource, keys)
            async for resource, keys in in_time_slices(questions, ctx.services.time_slice)
        ]
    )


def _once(
    resources: Iterable[DescribeConfigsResource],
) -> Iterable[tuple[DescribeConfigsResource, frozenset[str]]]:
    """Each question with the keys it asks for; none means all."""
    questions = {}
    for each in resources:
        keys = frozenset(each.configuration_keys or ())
        questions[each.resource_type, each.resource_name, keys] = (each, keys)
    return questions.values()


def _describe(
    ctx: RequestContext,
    request: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    wanted: frozenset[str],
) -> DescribeConfigsResult:
    response = DescribeConfigsResult(
        error_message="",
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[],
    )
    try:
        authorize(
            ctx, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name
        )
        entries = _entries(ctx, resource)
    except HeadraceError as error:
        response.error_code = error.code
        response.error_message = "" if error.message == error.code.name else error.message
        return response
    response.configs = [
        _shape(request, entry) for entry in entries if not wanted or entry.name in wanted
    ]
    return response


def _entries(ctx: RequestContext, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    services = ctx.services
    name = resource.resource_name
    if resource.resource_type == ConfigResourceType.TOPIC:
        problem = name_problem(name)
        if problem is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if name not in services.metadata.image.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_configs.describe(services.metadata.image.topic_configs(name), services.config)
    if resource.resource_type == ConfigResourceType.BROKER:
        if not name:
            return services.config.describe_dynamic_default()
        if not name.isdigit():
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
            )
        if int(name) != services.node_id:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {services.node_id} or empty string, "
                f"but received {name}",
            )
        return services.config.describe()
    if resource.resource_type == ConfigResourceType.GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_configs.describe(services.metadata.image.group_configs(name), services.config)
    raise ApiError(
        ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
    )


def _shape(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=False,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.key.type,
        documentation=entry.key.doc if request.include_documentation else None,
    )
