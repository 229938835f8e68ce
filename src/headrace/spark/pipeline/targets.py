"""Each sink as calls on a frame, for a stream and for a batch."""

from collections.abc import Mapping

from headrace.spark.pipeline.calls import (
    Call,
    Expression,
    Get,
    Name,
    call,
    function,
    options,
    with_options,
)
from headrace.spark.pipeline.model import (
    ConsoleTarget,
    DeltaTarget,
    ParquetTarget,
    Sink,
    Target,
    TopicTarget,
)

Connection = Mapping[str, str]


def prepared(target: Target, frame: Name) -> Expression | None:
    """The columns that the target takes, where they are not those of the rows."""
    if not isinstance(target, TopicTarget):
        return None
    value = "to_json(struct(*))" if target.value == "json" else f"({target.value})"
    columns = [f"{value} AS value"]
    if isinstance(target.key, tuple):
        columns.insert(
            0, f"to_json(struct({', '.join(f'`{each}`' for each in target.key)})) AS key"
        )
    elif target.key is not None:
        columns.insert(0, f"({target.key}) AS key")
    if target.headers is not None:
        columns.append(f"({target.headers}) AS headers")
    return call(frame, "selectExpr", *columns)


def topic_options(target: TopicTarget, connection: Connection) -> dict[str, str]:
    """Options of `format("headrace")` for a topic."""
    return {**connection, "topic": target.topic, **dict(target.options)}


def table_options(target: DeltaTarget) -> dict[str, str]:
    """Options of `format("headrace")` for a table."""
    given = {"path": target.path}
    if target.partition_by:
        given["partitionBy"] = ",".join(target.partition_by)
    if target.other_queries != "refuse":
        given["otherQueries"] = target.other_queries
    return given


def upsert_options(target: DeltaTarget) -> dict[str, str]:
    """Options of `headrace.spark.upsert`."""
    assert target.upsert is not None
    given = {
        **table_options(target),
        "on": ",".join(target.upsert.on),
        "newestBy": ",".join(target.upsert.newest_by),
    }
    if target.upsert.delete_when is not None:
        given["deleteWhen"] = target.upsert.delete_when
    if target.upsert.columns:
        given["columns"] = ",".join(target.upsert.columns)
    return given


def stream_writer(sink: Sink, frame: Name, connection: Connection, checkpoint: str) -> Call:
    """The sink's `writeStream`, without name, checkpoint and trigger."""
    stream = Get(frame, "writeStream")
    match sink.target:
        case TopicTarget(mode="update") as target:
            # Spark has no update mode for sinks written in Python, except by foreachBatch.
            write = function("each_batch", options(topic_options(target, connection)))
            return call(call(stream, "outputMode", "update"), "foreachBatch", write)
        case TopicTarget() as target:
            chain = call(call(stream, "outputMode", target.mode), "format", "headrace")
            return with_options(chain, topic_options(target, connection))
        case DeltaTarget(upsert=None) as target:
            chain = call(call(stream, "outputMode", target.mode), "format", "headrace")
            return with_options(chain, table_options(target))
        case DeltaTarget() as target:
            # The query's own option too, but that nobody hands to what is done for each batch.
            given = {**upsert_options(target), "checkpointLocation": checkpoint}
            write = call(Name("upsert"), "each_batch", options(given))
            return call(call(stream, "outputMode", "update"), "foreachBatch", write)
        case ParquetTarget() as target:
            chain = call(call(stream, "outputMode", "append"), "format", "parquet")
            if target.partition_by:
                chain = call(chain, "partitionBy", *target.partition_by)
            return call(chain, "option", "path", target.path)
        case ConsoleTarget() as target:
            chain = call(call(stream, "outputMode", target.mode), "format", "console")
            return with_options(chain, {"numRows": str(target.rows), "truncate": "false"})


def batch_writer(sink: Sink, frame: Name, connection: Connection, once_as: str | None) -> Call:
    """The same rows written as a batch; a table takes a batch of one name once."""
    batch = Get(frame, "write")
    named = {} if once_as is None else {"onceAs": once_as}
    match sink.target:
        case TopicTarget() as target:
            chain = with_options(
                call(batch, "format", "headrace"), topic_options(target, connection)
            )
            return call(call(chain, "mode", "append"), "save")
        case DeltaTarget(upsert=None) as target:
            given = {**table_options(target), **named}
            given.pop("otherQueries", None)
            chain = with_options(call(batch, "format", "headrace"), given)
            return call(call(chain, "mode", "append"), "save")
        case DeltaTarget() as target:
            given = {**upsert_options(target), **named}
            given.pop("otherQueries", None)
            return call(Name("upsert"), "write", frame, options(given))
        case ConsoleTarget() as target:
            return call(frame, "show", target.rows, truncate=False)
        case ParquetTarget():
            raise AssertionError("refused before: see backfilling.py")
