"""DescribeConfigs: the configs of topics, brokers and groups."""

from headrace.protocol.fields import array, boolean, int8, int16, int32, string
from headrace.protocol.message import Message, Struct, message


class DescribeConfigsResource(Struct):
    """One resource asked for."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string(), nullable=True)


@message(api_key=32, versions=(1, 4), flexible_from=4)
class DescribeConfigsRequest(Message):
    """Resources, and which keys of each (null: all)."""

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean(default=False)
    include_documentation: bool = boolean(since=3, default=False)


class DescribeConfigsSynonym(Struct):
    """A value this entry would have had from another source."""

    name: str = string()
    value: str | None = string(nullable=True, default=None)
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """One config entry."""

    name: str = string()
    value: str | None = string(nullable=True, default=None)
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8(since=3, default=0)
    documentation: str | None = string(since=3, nullable=True, default=None)


class DescribeConfigsResult(Struct):
    """The configs of one resource."""

    error_code: int = int16(default=0)
    error_message: str | None = string(nullable=True, default=None)
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@message(api_key=32, versions=(1, 4), flexible_from=4)
class DescribeConfigsResponse(Message):
    """The values, and where each comes from."""

    throttle_time_ms: int = int32(default=0)
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
