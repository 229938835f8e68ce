"""The driver's view of a cluster: which partitions there are, and which offsets places have."""

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar
from uuid import UUID

from headrace.client import (
    EARLIEST,
    LATEST,
    Client,
    CommittedOffset,
    OffsetSpec,
    TopicPartition,
    at_time,
)
from headrace.client.core.lookups import refresh_metadata, topic_error
from headrace.core.errors import ErrorCode, HeadraceError, InvalidConfig
from headrace.protocol.fields import NULL_UUID
from headrace.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtTimes,
    Bound,
    End,
    Offsets,
    require_same_partitions,
)
from headrace.spark.options import SourceOptions

T = TypeVar("T")
ResolvedOffsets = dict[TopicPartition, int]
logger = logging.getLogger(__name__)


class DataLoss(HeadraceError):
    """Records that should have been read are no longer there."""

    code = ErrorCode.OFFSET_OUT_OF_RANGE
    default_hint = "set failOnDataLoss=false to go on without them"


def report_loss(what: str, *, fail: bool) -> None:
    """Fail, or say what is missing and go on, as failOnDataLoss has it."""
    if fail:
        raise DataLoss(
            f"{what}. Records were deleted before they were read; {DataLoss.default_hint}"
        )
    logger.warning("going on without lost records, since failOnDataLoss=false: reason=%s", what)


class OffsetResolver:
    """Partitions and offsets as they are now; connects when first asked."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._client: Client | None = None
        self._ids: dict[str, UUID] = {}
        self._recreated_topics: set[str] = set()

    def close(self) -> None:
        """Close the connections; the next question opens new ones."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def partitions(self, before: Collection[TopicPartition] = ()) -> list[TopicPartition]:
        """Every partition that the subscription means now, in order.

        A topic that is not there is refused as misspelled, unless it was read `before` and
        failOnDataLoss=false lets a query go on without it.
        """
        may_be_gone = set() if self._options.fail_on_data_loss else {p.topic for p in before}
        return self._retried(lambda client: self._partitions(client, may_be_gone))

    def latest_now(self) -> ResolvedOffsets:
        """Where everything ends that is there; what is not is for `partitions` to judge."""
        named = {*self._options.subscription.topics}
        named |= {each.topic for each in self._options.subscription.partitions}
        return self.latest(self._retried(lambda client: self._partitions(client, named)))

    def recreated_topics(self) -> list[str]:
        """The topics that were deleted and created again since they were first asked for.

        They are told once if a query may go on, else whenever it asks.
        """
        found = sorted(self._recreated_topics)
        if not self._options.fail_on_data_loss:
            self._recreated_topics.clear()
        return found

    def earliest(self, partitions: Collection[TopicPartition]) -> ResolvedOffsets:
        """Where these partitions start."""
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Collection[TopicPartition]) -> ResolvedOffsets:
        """Where these partitions end, for a reader of the chosen isolation."""
        return self._list_offsets(dict.fromkeys(partitions, LATEST))

    def resolve(self, bound: Bound, side: str) -> ResolvedOffsets:
        """The offsets of a starting or ending place, for every partition there is."""
        partitions = self.partitions()
        if side == "starting":
            self._retried(self._require_dead_letter_topic)
        if bound is End.EARLIEST:
            return self.earliest(partitions)
        if bound is End.LATEST:
            return self.latest(partitions)
        if isinstance(bound, AtTimes):
            return self._at_times(bound, partitions, side)
        assert isinstance(bound, Mapping)
        require_same_partitions(bound, partitions, f"{side}Offsets")
        found = {each: offset for each, offset in bound.items() if offset >= 0}
        found |= self.earliest([each for each in bound if bound[each] == EARLIEST_OFFSET])
        return found | self.latest([each for each in bound if bound[each] == LATEST_OFFSET])

    def commit(self, group: str, offsets: Offsets) -> None:
        """Commit offsets for a group without members, so that its lag is that of the query."""
        wanted: dict[TopicPartition, int | CommittedOffset] = dict(offsets)
        self._connected().admin.alter_offsets(group, wanted)

    def committed(self, group: str) -> ResolvedOffsets:
        """What a group has committed."""
        found = self._connected().admin.committed_offsets(group)
        return {partition: committed.offset for partition, committed in found.items()}

    def _partitions(self, client: Client, may_be_gone: Collection[str]) -> list[TopicPartition]:
        wanted = self._options.subscription
        if wanted.pattern is not None:
            response = client.requests.run(refresh_metadata(client.requests.session, None))
            matches = re.compile(wanted.pattern).fullmatch
            topics = [
                topic
                for topic in response.topics
                if matches(topic.name or "") and not topic.is_internal and not topic.error_code
            ]
        else:
            names = wanted.topics or tuple({each.topic: None for each in wanted.partitions})
            response = client.requests.run(refresh_metadata(client.requests.session, names))
            topics = [each for each in response.topics if not each.error_code]
            for topic in response.topics:
                code, name = ErrorCode(topic.error_code), topic.name or ""
                gone = code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in may_be_gone
                if topic.error_code and not gone:
                    raise topic_error(code, name, may_appear=False)
        self._compare_ids({topic.name or "": topic.topic_id for topic in topics})
        found = sorted(
            TopicPartition(topic.name or "", part.partition_index)
            for topic in topics
            for part in topic.partitions
        )
        if not wanted.partitions:
            return found
        there = set(found)
        for each in wanted.partitions:
            if each not in there and each.topic not in may_be_gone:
                raise InvalidConfig(f"assign names {each}, which does not exist")
        return [each for each in wanted.partitions if each in there]

    def _compare_ids(self, ids: Mapping[str, UUID]) -> None:
        """Old brokers have none, and then nothing is known."""
        for topic, now in ids.items():
            if self._ids.setdefault(topic, now) != now and now != NULL_UUID:
                self._recreated_topics.add(topic)
                self._ids[topic] = now

    def _require_dead_letter_topic(self, client: Client) -> None:
        """The topic of bad records is there: a broker may make one that is merely misspelt."""
        topic = self._options.values.dead_letter_topic
        if topic is None:
            return
        [found] = client.requests.run(refresh_metadata(client.requests.session, (topic,))).topics
        if found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise InvalidConfig(
                f"deadLetterTopic={topic!r} does not exist: "
                f"`headrace topic create {topic}` makes it"
            )

    def _at_times(
        self, bound: AtTimes, partitions: list[TopicPartition], side: str
    ) -> ResolvedOffsets:
        if bound.by_partition is not None:
            require_same_partitions(bound.by_partition, partitions, f"{side}OffsetsByTimestamp")
            times = dict(bound.by_partition)
        else:
            times = dict.fromkeys(partitions, bound.everywhere_ms or 0)
        found = self._list_offsets({each: at_time(times[each]) for each in partitions})
        later = [each for each, offset in found.items() if offset < 0]
        if later and side == "starting" and self._options.no_match == "error":
            raise InvalidConfig(
                f"no record of {later[0]} is as late as {times[later[0]]}; choose an earlier time, "
                "or set startingOffsetsByTimestampStrategy=latest to start at the end"
            )
        return found | self.latest(later)

    def _list_offsets(self, specs: Mapping[TopicPartition, OffsetSpec]) -> ResolvedOffsets:
        if not specs:
            return {}
        committed = self._options.reader.isolation == "read_committed"
        found = self._retried(
            lambda client: client.admin.list_offsets(specs, read_committed=committed)
        )
        return {partition: listed.offset for partition, listed in found.items()}

    def _retried(self, request: Callable[[Client], T]) -> T:
        """Ask, and ask again by a new connection as often as fetchOffset.numRetries allows."""
        for left in range(self._options.fetch_offset_retries, -1, -1):
            try:
                return request(self._connected())
            except InvalidConfig:
                raise
            except HeadraceError as error:
                self.close()
                if not left:
                    raise
                logger.info("asking for offsets again: error=%s", error)
                time.sleep(self._options.fetch_offset_retry_ms / 1000)
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> Client:
        if self._client is None:
            self._client = Client(self._options.client)
        return self._client
