"""Each sink as calls on a frame, for a stream and for a batch."""

from headrace.spark.pipeline.calls import Call, Expression, Get, Name, call, function
from headrace.spark.pipeline.model import Console, Delta, Pairs, Parquet, Sink, Target, Topic


def prepared(target: Target, frame: Name) -> Expression | None:
    """The columns that the target takes, where they are not those of the rows."""
    if not isinstance(target, Topic):
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


def topic_options(target: Topic, servers: str) -> dict[str, str]:
    """Options of `format("headrace")` for a topic."""
    return {"kafka.bootstrap.servers": servers, "topic": target.topic, **dict(target.options)}


def table_options(target: Delta) -> dict[str, str]:
    """Options of `format("headrace")` for a table."""
    options = {"path": target.path}
    if target.partition_by:
        options["partitionBy"] = ",".join(target.partition_by)
    if target.other_queries != "refuse":
        options["otherQueries"] = target.other_queries
    return options


def upsert_options(target: Delta) -> dict[str, str]:
    """Options of `headrace.spark.upsert`."""
    assert target.upsert is not None
    options = {
        **table_options(target),
        "on": ",".join(target.upsert.on),
        "newestBy": ",".join(target.upsert.newest_by),
    }
    if target.upsert.delete_when is not None:
        options["deleteWhen"] = target.upsert.delete_when
    if target.upsert.columns:
        options["columns"] = ",".join(target.upsert.columns)
    return options


def stream_writer(sink: Sink, frame: Name, servers: str) -> Call:
    """The sink's `writeStream`, without name, checkpoint and trigger."""
    stream = Get(frame, "writeStream")
    match sink.target:
        case Topic(mode="update") as target:
            # Spark has no update mode for sinks written in Python, except by foreachBatch.
            write = function("each_batch", _pairs(topic_options(target, servers)))
            return call(call(stream, "outputMode", "update"), "foreachBatch", write)
        case Topic() as target:
            chain = call(call(stream, "outputMode", target.mode), "format", "headrace")
            return _with_options(chain, topic_options(target, servers))
        case Delta(upsert=None) as target:
            chain = call(call(stream, "outputMode", target.mode), "format", "headrace")
            return _with_options(chain, table_options(target))
        case Delta() as target:
            write = function("upsert_each_batch", _pairs(upsert_options(target)))
            return call(call(stream, "outputMode", "update"), "foreachBatch", write)
        case Parquet() as target:
            chain = call(call(stream, "outputMode", "append"), "format", "parquet")
            if target.partition_by:
                chain = call(chain, "partitionBy", *target.partition_by)
            return call(chain, "option", "path", target.path)
        case Console() as target:
            chain = call(call(stream, "outputMode", target.mode), "format", "console")
            return _with_options(chain, {"numRows": str(target.rows), "truncate": "false"})


def _pairs(options: dict[str, str]) -> Pairs:
    return tuple(options.items())


def _with_options(chain: Call, options: dict[str, str]) -> Call:
    for name, value in options.items():
        chain = call(chain, "option", name, value)
    return chain
