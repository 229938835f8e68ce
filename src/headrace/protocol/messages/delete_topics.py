"""DeleteTopics: remove topics and their data."""

from uuid import UUID

from headrace.protocol.fields import NULL_UUID, array, int16, int32, string, uuid
from headrace.protocol.message import Message, Struct, message


class DeleteTopicState(Struct):
    """One topic, by name or id."""

    name: str | None = string(nullable=True, default=None)
    topic_id: UUID = uuid()


@message(api_key=20, versions=(1, 6), flexible_from=4)
class DeleteTopicsRequest(Message):
    """Topics to delete, by name or (from v6) by id."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6, default=())
    topic_names: list[str] = array(string(), until=5, default=())
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """The outcome for one topic."""

    name: str | None = string(nullable=6, default=None)
    topic_id: UUID = uuid(since=6, default=NULL_UUID)
    error_code: int = int16(default=0)
    error_message: str | None = string(since=5, nullable=True, default=None)


@message(api_key=20, versions=(1, 6), flexible_from=4)
class DeleteTopicsResponse(Message):
    """The outcome, per topic."""

    throttle_time_ms: int = int32(default=0)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
