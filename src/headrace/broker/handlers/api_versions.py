"""ApiVersions: what this broker speaks. Works before anything else has been agreed."""

import re

from headrace.broker.request import RequestContext
from headrace.broker.routes import ROUTES, ROUTES_ON, handles
from headrace.core.errors import ErrorCode
from headrace.protocol.api_keys import ApiKey
from headrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

CLIENT_NAME_SINCE = 3
ZERO_MINIMUM_SINCE = 4

# A client's software name and version end up in metrics and logs (KIP-511).
_CLIENT_WORD = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """List every API of the listener with its versions. Asks for no permission: nothing is known
    yet."""
    newest = ROUTES[ApiKey.API_VERSIONS].highest_version
    if not 0 <= ctx.api_version <= newest:
        return ApiVersionsResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION,
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=newest)],
        )
    if ctx.api_version >= CLIENT_NAME_SINCE:
        words = (request.client_software_name, request.client_software_version)
        if not all(_CLIENT_WORD.fullmatch(word) for word in words):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        ctx.connection.origin = ctx.origin._replace(client_software=words)
    image = ctx.services.metadata.image
    registration = image.brokers.get(ctx.services.node_id)
    supported = registration.features if registration is not None else {}
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(
                api_key=route.api_key,
                min_version=route.lowest_version,
                max_version=route.highest_version,
            )
            for route in ROUTES_ON[ctx.origin.listener_type].values()
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported.items()
            # Older readers take a minimum of 0 for a fault (KAFKA-17011).
            if low > 0 or ctx.api_version >= ZERO_MINIMUM_SINCE
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
        ],
    )
