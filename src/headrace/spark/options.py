"""What a job may set on `format("headrace")`, in the words of Spark's Kafka connector.

A name that is not known here is refused with the ones that are: an option that is spelled wrong
and silently ignored is how jobs come to read the wrong thing.
"""

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.client import ClientSettings, ReaderSettings, TopicPartition
from headrace.core.errors import InvalidConfig
from headrace.spark.connection import FETCH_KEYS, connection, fetch_settings, given_kafka
from headrace.spark.offsets import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    AtTimes,
    Bound,
    End,
    parse_offsets,
)

ValueFormat = Literal["raw", "string", "json", "avro"]
Strategy = Literal["error", "latest"]

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS: Final = "headers"
ERROR: Final = "_error"
RAW: Final = "_raw"
LATE_BEFORE: Final = "_late_before"
# What the counts of late rows are called in the progress of a query.
LATE_COUNTS: Final = "headrace_late"

SOURCE_NAMES: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "parallelism",
    "includeHeaders",
    "groupIdPrefix",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "kafkaConsumer.pollTimeoutMs",
    "commitGroup",
    "valueFormat",
    "valueSchema",
    "deadLetterTopic",
    "columns",
    "watermarkCheckpoint",
)
_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?")
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}
_SINK_NAMES: Final = ("topic", "delivery")


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which partitions: exactly one of these is set."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()

    def reads(self, topic: str) -> bool:
        """Whether a topic of this name is read, or would be if it were there."""
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics or any(each.topic == topic for each in self.partitions)


@dataclass(frozen=True, slots=True)
class Values:
    """What to make of the bytes of a value, and of those that are not what they should be."""

    format: ValueFormat = "raw"
    schema: str | None = None
    dead_letter_topic: str | None = None

    @property
    def has_error_columns(self) -> bool:
        return self.format != "raw" and self.dead_letter_topic is None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Everything a reader needs; it pickles, and goes to the executors with the reader."""

    client: ClientSettings
    reader: ReaderSettings
    subscription: Subscription
    starting: Bound
    ending: Bound
    no_match: Strategy
    fail_on_data_loss: bool
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    partitions_min: int | None
    records_per_partition_max: int | None
    parallelism: int | None
    fetch_offset_retries: int
    fetch_offset_retry_ms: int
    poll_timeout_ms: int
    commit_group: str | None
    values: Values
    columns: tuple[str, ...]
    watermark_checkpoint: str | None

    @property
    def start_moves(self) -> bool:
        """Whether the start depends on when it is asked for: records come, and retention too."""
        if not isinstance(self.starting, Mapping):
            return True
        return any(offset < 0 for offset in self.starting.values())


class _Given:
    """The options as given, whatever their capitals, each to be read by its proper name."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower())

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise InvalidConfig(f"{name}={value!r} is not true or false")
        return value.lower() == "true"

    def number(self, name: str, minimum: int) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[+-]?\d+", value.strip()) or int(value) < minimum:
            raise InvalidConfig(f"{name}={value!r} is not a whole number of at least {minimum}")
        return int(value)

    def choice(self, name: str, allowed: Iterable[str], default: str) -> Any:
        value = (self.text(name) or default).lower()
        if value not in allowed:
            raise InvalidConfig(f"{name}={value!r} is not one of {', '.join(allowed)}")
        return value

    def count(self, name: str, default: int) -> int:
        value = self.number(name, 0)
        return default if value is None else value


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a read, checked; what is wrong is refused by name."""
    refuse_unknown(options, SOURCE_NAMES, other_side=_SINK_NAMES)
    given = _Given(options)
    kafka = given_kafka(options)
    values = _values(given)
    subscription = _subscription(given)
    if values.dead_letter_topic is not None and subscription.reads(values.dead_letter_topic):
        raise InvalidConfig(
            f"deadLetterTopic={values.dead_letter_topic!r} is one of the topics that are read, so "
            "that bad records would come round for ever: choose another, or read without it"
        )
    starting = _bound(given, "starting", "latest" if streaming else "earliest")
    ending = _bound(given, "ending", "latest")
    _check_bounds(given, starting, ending, streaming=streaming)
    least = given.number("minOffsetsPerTrigger", 1)
    most = given.number("maxOffsetsPerTrigger", 1)
    if least is not None and most is not None and least > most:
        raise InvalidConfig(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
    group = kafka.get("group.id") or given.text("groupIdPrefix")
    return SourceOptions(
        client=connection(options, also=FETCH_KEYS, client_id=group),
        reader=fetch_settings(kafka),
        subscription=subscription,
        starting=starting,
        ending=ending,
        no_match=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        offsets_per_trigger_max=most,
        offsets_per_trigger_min=least,
        trigger_delay_ms_max=_duration_ms("maxTriggerDelay", given.text("maxTriggerDelay")),
        partitions_min=given.number("minPartitions", 1),
        records_per_partition_max=given.number("maxRecordsPerPartition", 1),
        parallelism=given.number("parallelism", 1),
        fetch_offset_retries=given.count("fetchOffset.numRetries", 3),
        fetch_offset_retry_ms=given.count("fetchOffset.retryIntervalMs", 1000),
        poll_timeout_ms=given.count("kafkaConsumer.pollTimeoutMs", 120_000),
        commit_group=_commit_group(given, streaming=streaming),
        values=values,
        columns=_columns(given, values),
        watermark_checkpoint=_watermark_checkpoint(given, streaming=streaming),
    )


def column_options(options: Mapping[str, str]) -> tuple[tuple[str, ...], Values]:
    """Only what decides about columns: batch or stream is not known yet when Spark asks."""
    refuse_unknown(options, SOURCE_NAMES, other_side=_SINK_NAMES)
    given = _Given(options)
    values = _values(given)
    return _columns(given, values), values


def refuse_unknown(
    options: Mapping[str, str], known: Iterable[str], *, other_side: Iterable[str] = ()
) -> None:
    """Refuse a name that is neither known nor `kafka.*`, with the names that are allowed."""
    allowed = {name.lower(): name for name in known}
    others = {name.lower(): name for name in other_side}
    for name in options:
        low = name.lower()
        if low in allowed or low.startswith("kafka."):
            continue
        if low in others:
            raise InvalidConfig(f"option {others[low]!r} is not for this side: read or write?")
        near = difflib.get_close_matches(low, list(allowed), 1, 0.75)
        meant = f"did you mean {allowed[near[0]]!r}? " if near else ""
        listed = ", ".join(sorted(allowed.values()))
        raise InvalidConfig(f"unknown option {name!r}: {meant}allowed are {listed} and kafka.*")


def _subscription(given: _Given) -> Subscription:
    found = [name for name in _SUBSCRIPTIONS if given.text(name) is not None]
    if len(found) != 1:
        said = f"{' and '.join(found)} are given" if found else "none is given"
        raise InvalidConfig(f"one of {', '.join(_SUBSCRIPTIONS)} must be set; {said}")
    text = (given.text(found[0]) or "").strip()
    if found[0] == "subscribe":
        topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if not topics:
            raise InvalidConfig("subscribe is empty: give topics, separated by commas")
        return Subscription(topics=topics)
    if found[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise InvalidConfig(
                f"subscribePattern={text!r} is no regular expression: {error}"
            ) from error
        if not text:
            raise InvalidConfig("subscribePattern is empty: give a regular expression")
        return Subscription(pattern=text)
    return Subscription(partitions=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"topic":[0,1]}'
    try:
        read = json.loads(text)
        found = [TopicPartition(topic, part) for topic, parts in read.items() for part in parts]
    except (ValueError, AttributeError, TypeError):
        raise InvalidConfig(f"assign={text!r} is not JSON such as {example}") from None
    if not found or not all(type(each.partition) is int and each.partition >= 0 for each in found):
        raise InvalidConfig(f"assign={text!r} must name partitions, as in {example}")
    return tuple(sorted(set(found)))


def _bound(given: _Given, side: Literal["starting", "ending"], default: str) -> Bound:
    """Where to begin or end; as in the connector, a time for all goes before times for each."""
    time = given.number(f"{side}Timestamp", 0)
    if time is not None:
        return AtTimes(everywhere_ms=time)
    name = f"{side}OffsetsByTimestamp"
    times = given.text(name)
    if times is not None:
        by_partition = parse_offsets(times, name)
        if any(each < 0 for each in by_partition.values()):
            raise InvalidConfig(f"{name}: times are milliseconds since 1970, not negative")
        return AtTimes(by_partition=by_partition)
    name = f"{side}Offsets"
    text = (given.text(name) or default).strip()
    if text.lower() == "earliest":
        return End.EARLIEST
    if text.lower() == "latest":
        return End.LATEST
    return parse_offsets(text, name)


def _check_bounds(given: _Given, starting: Bound, ending: Bound, *, streaming: bool) -> None:
    for bound, name in ((starting, "startingOffsets"), (ending, "endingOffsets")):
        if isinstance(bound, Mapping) and any(each < EARLIEST_OFFSET for each in bound.values()):
            raise InvalidConfig(f"{name}: offsets are 0 or more, or -2 (earliest) or -1 (latest)")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if given.text(name) is not None:
                raise InvalidConfig(f"{name} is for batch reads: a stream has no end")
        return
    for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
        if given.text(name) is not None:
            raise InvalidConfig(f"{name} is for streams: a batch read has no triggers")
    if starting is End.LATEST or LATEST_OFFSET in _values_of(starting):
        raise InvalidConfig("startingOffsets: a batch read cannot start at the latest offset (-1)")
    if ending is End.EARLIEST or EARLIEST_OFFSET in _values_of(ending):
        raise InvalidConfig("endingOffsets: a batch read cannot end at the earliest offset (-2)")


def _values_of(bound: Bound) -> set[int]:
    return set(bound.values()) if isinstance(bound, Mapping) else set()


def _duration_ms(name: str, text: str | None) -> int:
    if text is None:
        return 15 * _UNITS_MS["m"]
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise InvalidConfig(f"{name}={text!r} is not a time such as 15m, 30s or 500ms")
    return int(match[1]) * _UNITS_MS[match[2] or "ms"]


def _commit_group(given: _Given, *, streaming: bool) -> str | None:
    group = given.text("commitGroup")
    if group is None:
        return None
    if not streaming:
        raise InvalidConfig("commitGroup is for streams: a batch read finishes no offsets")
    if not group.strip():
        raise InvalidConfig("commitGroup is empty: give the name of a consumer group")
    return group


def _watermark_checkpoint(given: _Given, *, streaming: bool) -> str | None:
    checkpoint = given.text("watermarkCheckpoint")
    if checkpoint is not None and not streaming:
        raise InvalidConfig("watermarkCheckpoint is for streams: a batch read has no late rows")
    if checkpoint is not None and not checkpoint.strip():
        raise InvalidConfig("watermarkCheckpoint is empty: give the query's checkpointLocation")
    return checkpoint


def _values(given: _Given) -> Values:
    kind: ValueFormat = given.choice("valueFormat", ("raw", "string", "json", "avro"), "raw")
    schema, dead = given.text("valueSchema"), given.text("deadLetterTopic")
    if kind in ("json", "avro") and not (schema or "").strip():
        raise InvalidConfig(f"valueFormat={kind} needs valueSchema, the columns of the value")
    if kind in ("raw", "string") and schema is not None:
        raise InvalidConfig(f"valueSchema is for valueFormat=json or avro, not {kind}")
    if kind == "raw" and dead is not None:
        raise InvalidConfig("deadLetterTopic needs valueFormat: raw values are never bad")
    if dead is not None and not dead.strip():
        raise InvalidConfig("deadLetterTopic is empty: give the name of a topic")
    return Values(kind, schema, dead)


def _columns(given: _Given, values: Values) -> tuple[str, ...]:
    late = () if given.text("watermarkCheckpoint") is None else (LATE_BEFORE,)
    return (*_record_columns(given, values), *late)


def _record_columns(given: _Given, values: Values) -> tuple[str, ...]:
    known = [*COLUMNS]
    with_headers = given.flag("includeHeaders", False)
    if with_headers:
        known.append(HEADERS)
    if values.has_error_columns:
        known += [ERROR, RAW]
    text = given.text("columns")
    if text is None:
        return tuple(known)
    by_low = {name.lower(): name for name in known}
    wanted = list(dict.fromkeys(each.strip().lower() for each in text.split(",") if each.strip()))
    for each in wanted:
        if each not in by_low:
            hint = "; set includeHeaders=true for it" if each == HEADERS else ""
            raise InvalidConfig(f"columns: {each!r} is not one of {', '.join(known)}{hint}")
    if not wanted:
        raise InvalidConfig(f"columns is empty: choose from {', '.join(known)}")
    if with_headers and HEADERS not in wanted:
        raise InvalidConfig("includeHeaders=true, but columns leaves headers out")
    if values.has_error_columns and "value" in wanted and ERROR not in wanted:
        raise InvalidConfig(
            f"columns leaves out {ERROR}, so that bad records would be lost silently: "
            "list it too, or set deadLetterTopic"
        )
    looks_at_values = values.dead_letter_topic is not None or {ERROR, RAW} & set(wanted)
    if values.format == "json" and looks_at_values and "value" not in wanted:
        raise InvalidConfig("columns leaves out value: list it too, or leave valueFormat out")
    return tuple(by_low[each] for each in wanted)
