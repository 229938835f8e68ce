"""What a ConsumerGroupHeartbeat must say before anybody looks at the group."""

from headrace.core.errors import ApiError, ErrorCode
from headrace.groups.consumer.members import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from headrace.groups.consumer.settings import ConsumerGroupSettings
from headrace.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest


def check_request(
    request: ConsumerGroupHeartbeatRequest, api_version: int, settings: ConsumerGroupSettings
) -> None:
    """Refuse what is incomplete or contradicts itself, in Kafka's order and words."""
    epoch = request.member_epoch
    # From version 1 on the client makes its own id (KIP-1082).
    if api_version >= 1 or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(request.group_id, "GroupId can't be empty.")
    _not_blank(request.instance_id, "InstanceId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise _invalid("InstanceId can't be null.")
    elif epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in settings.assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(settings.assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1 and request.topic_partitions is None:
        # An ordinary heartbeat of somebody who has just left. librdkafka sends it when a program
        # unsubscribes and subscribes in one breath; INVALID_REQUEST, which is Kafka's answer,
        # would be fatal to it, while this makes it join.
        raise ApiError(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"Member {request.member_id} is not a member of group {request.group_id}.",
        )
    if request.rebalance_timeout_ms == -1:
        raise _invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise _invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise _invalid(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null "
            "when (re-)joining."
        )


def _not_blank(value: str | None, message: str) -> None:
    if value is not None and not value.strip():
        raise _invalid(message)


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
