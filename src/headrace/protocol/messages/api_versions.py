"""ApiVersions: what the broker can do. Its response header stays at v0."""

from headrace.protocol.fields import array, boolean, int16, int32, int64, string
from headrace.protocol.message import Message, Struct, message


@message(api_key=18, versions=(0, 4), flexible_from=3)
class ApiVersionsRequest(Message):
    """Who asks."""

    client_software_name: str = string(since=3, default="")
    client_software_version: str = string(since=3, default="")


class ApiVersion(Struct):
    """The range served for one API."""

    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


class SupportedFeatureKey(Struct):
    """The range of a feature this broker supports."""

    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


class FinalizedFeatureKey(Struct):
    """The level of a feature the cluster has agreed on."""

    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@message(api_key=18, versions=(0, 4), flexible_from=3)
class ApiVersionsResponse(Message):
    """Version ranges per API, and features."""

    error_code: int = int16(default=0)
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32(since=1, default=0)
    supported_features: list[SupportedFeatureKey] = array(
        SupportedFeatureKey, since=3, tag=0, default=()
    )
    finalized_features_epoch: int = int64(since=3, tag=1, default=-1)
    finalized_features: list[FinalizedFeatureKey] = array(
        FinalizedFeatureKey, since=3, tag=2, default=()
    )
    zk_migration_ready: bool = boolean(since=3, tag=3, default=False)
