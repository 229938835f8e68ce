"""Whether a pipeline would run: topics, options, SQL and columns, with no record read."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from headrace.client import Client, ClientSettings, TopicDescription, TopicPartition
from headrace.core.errors import HeadraceError, InvalidConfig
from headrace.spark import upsert
from headrace.spark.lake import table_options as check_table
from headrace.spark.options import source_options
from headrace.spark.pipeline.checkpoint_owner import refuse_others
from headrace.spark.pipeline.checkpoints import refuse_lost
from headrace.spark.pipeline.compiler import connection_of, streaming_program
from headrace.spark.pipeline.document import Findings, Location, PipelineInvalid
from headrace.spark.pipeline.frames import (
    check_schema,
    configured,
    frame_of,
    reason,
    refuse_over_connect,
    without_traces,
)
from headrace.spark.pipeline.model import DeltaTarget, ParquetTarget, Sink, Spec, TopicTarget
from headrace.spark.pipeline.rules import ONE_TEXT, output_mode, refuse_end
from headrace.spark.pipeline.targets import table_options, topic_options, upsert_options
from headrace.spark.sink_options import topic_sink_options

# Options of tables by the keys of a pipeline that set them.
_KEYS: Final = {
    "partitionBy": "partition_by",
    "otherQueries": "other_queries",
    "deleteWhen": "upsert.delete_when",
    "newestBy": "upsert.newest_by",
}


def check_topics(spec: Spec, sinks: Sequence[Sink], servers: str, findings: Findings) -> None:
    """Whether the broker answers and has the topics of these sinks, by metadata alone.

    Asked before anything starts: a broker may make a topic that is merely misspelt.
    """
    source = spec.source
    given = {**dict(source.options), **dict(source.starting), "kafka.bootstrap.servers": servers}
    chosen = source_options(given, streaming=True)
    there = _topics(chosen.client, spec.location_of("bootstrap_servers"), findings)
    if there is None:
        return
    for topic, location in _topics_beside(spec, chosen.subscription.topics):
        _require(topic, location, there, findings)
    for part in chosen.subscription.partitions:
        if part.topic not in there or part.partition >= len(there[part.topic].partitions):
            findings.add(source.location_of_option("assign"), f"there is no partition {part}")
        elif part.partition in _offline(there[part.topic]):
            _report_offline([part], source.location_of_option("assign"), findings)
    if chosen.subscription.pattern is not None:
        for name in sorted(filter(chosen.subscription.reads, there)):
            if not there[name].is_internal:
                _require_online(there[name], source.location, findings)
    for sink in sinks:
        if isinstance(sink.target, TopicTarget):
            options = topic_options(sink.target, connection_of(spec, sink, servers))
            reached = there
            if options["kafka.bootstrap.servers"] != servers:
                settings = topic_sink_options(options, ONE_TEXT).client
                elsewhere = _topics(settings, sink.location, findings)
                if elsewhere is None:
                    continue
                reached = elsewhere
            _require(sink.target.topic, sink.location, reached, findings)


def check_stream(spec: Spec, servers: str, findings: Findings) -> None:
    """What would keep its queries from starting, as far as it is known without Spark."""
    refuse_end(spec, findings)
    check_topics(spec, spec.sinks, servers, findings)
    if not findings.problems:
        refuse_others(spec, servers, findings)
        refuse_lost(spec, servers, findings)


_Topics = Mapping[str, TopicDescription]


def _topics(settings: ClientSettings, location: Location, findings: Findings) -> _Topics | None:
    """Topics by their names, or None where no broker answers."""
    try:
        with Client(settings) as client:
            client.connect()
            found = client.admin.list_topics(internal=True)
    except HeadraceError as error:
        findings.add(location, f"no broker answers: {error}")
        return None
    return {each.name: each for each in found}


def _require(topic: str, location: Location, there: _Topics, findings: Findings) -> None:
    if topic not in there:
        findings.add(
            location, f"the topic {topic} does not exist: `headrace topic create {topic}` makes it"
        )
    else:
        _require_online(there[topic], location, findings)


def _require_online(topic: TopicDescription, location: Location, findings: Findings) -> None:
    offline = [TopicPartition(topic.name, each) for each in _offline(topic)]
    if offline:
        _report_offline(offline, location, findings)


def _offline(topic: TopicDescription) -> list[int]:
    """Partitions whose own leader cannot open them; without a leader there may be one soon."""
    return [each.partition for each in topic.partitions if each.leader in each.offline]


def _report_offline(
    parts: Sequence[TopicPartition], location: Location, findings: Findings
) -> None:
    """A query would ask for them for minutes, without a word, and then fail."""
    are = "is" if len(parts) == 1 else "are"
    findings.add(
        location,
        f"{', '.join(map(str, parts))} {are} offline: the broker cannot open the files, and says "
        "in its log why; mend them and start it again",
    )


def _topics_beside(spec: Spec, read: tuple[str, ...]) -> Iterator[tuple[str, Location]]:
    """Those that are read, and that of dead letters."""
    for topic in read:
        yield topic, spec.source.location_of_option("subscribe")
    if spec.dead_letter_topic is not None:
        yield spec.dead_letter_topic, spec.location_of("on_bad_record")


def check_frames(spec: Spec, spark: SparkSession, servers: str, findings: Findings) -> None:
    """Whether Spark takes every step, and every sink the rows that reach it."""
    known = len(findings.problems)
    refuse_over_connect(spec, spark, findings)
    # Settings that Spark does not take are in the findings then, and no frame was made with them.
    with suppress(PipelineInvalid), configured(spark, spec, findings):
        check_schema(spec, findings)
        if len(findings.problems) > known:
            return
        for sink in spec.sinks:
            frame = frame_of(streaming_program(spec, sink, servers), spark, findings)
            if frame is None:
                continue
            try:
                with without_traces():
                    _check_mode(sink, spark, frame)
                    _check_columns(sink, frame, connection_of(spec, sink, servers))
            except (PySparkException, HeadraceError) as error:
                findings.add(*_in_words(sink, reason(error)))


def _in_words(sink: Sink, message: str) -> tuple[Location, str]:
    """What a sink refuses, at the key that it is about and by that key's name."""
    for option, key in _KEYS.items():
        if option in message:
            word = re.compile(rf"\b{option}\b")
            return sink.location_of(key), word.sub(key.rpartition(".")[2], message)
    return sink.location, message


def _check_mode(sink: Sink, spark: SparkSession, frame: DataFrame) -> None:
    """What Spark says when a query starts, asked without starting one."""
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:  # over Spark Connect there is no way to ask
        return
    mode = jvm.org.apache.spark.sql.catalyst.streaming.InternalOutputModes.apply(output_mode(sink))
    analyzed = frame._jdf.queryExecution().analyzed()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(analyzed, mode)


def _check_columns(sink: Sink, frame: DataFrame, connection: Mapping[str, str]) -> None:
    match sink.target:
        case TopicTarget() as target:
            topic_sink_options(topic_options(target, connection), frame.schema)
        case DeltaTarget(upsert=None) as target:
            overwrite = target.mode == "complete"
            check_table(table_options(target), frame.schema, overwrite=overwrite)
        case DeltaTarget() as target:
            upsert.check(frame, upsert_options(target))
        case ParquetTarget(partition_by=names):
            for name in names:
                if name.lower() not in {each.lower() for each in frame.columns}:
                    raise InvalidConfig(
                        f"partitionBy: there is no column {name!r}; there are "
                        f"{', '.join(frame.columns)}"
                    )
