"""Every key that a pipeline's file may have, in the order of the guide."""

from typing import Final

from headrace.spark.pipeline.fields import Key, Section

PIPELINE: Final = Section(
    "the pipeline",
    "The pipeline",
    (
        Key(
            "name", "a name of a-z, 0-9, -, _ and .", "queries are called NAME-SINK", required=True
        ),
        Key("bootstrap_servers", "HOST:PORT, ...", "brokers; or `--bootstrap-servers`"),
        Key(
            "checkpoint",
            "a directory",
            "where progress is kept, a directory per sink",
            required=True,
        ),
        Key("trigger", "`{every: 2 seconds}` or `available-now`", "when batches start", "at once"),
        Key("source", "a mapping", "what is read", required=True),
        Key(
            "on_bad_record",
            "`column` or `{dead_letter: TOPIC}`",
            "values that cannot be decoded",
            "`column`",
        ),
        Key(
            "on_late",
            "`count`, `fail` or `{fail: {at_most: 5 %}}`",
            "rows that windows, dedup and state leave out since they came too late",
            "`count`",
        ),
        Key("settings", "a mapping", "settings of Spark, for these queries"),
        Key("steps", "a list of steps", "what is done for all sinks"),
        Key(
            "sinks", "a list of sinks", "where rows go; each is one streaming query", required=True
        ),
    ),
)
TRIGGER: Final = Section(
    "trigger",
    "`trigger`",
    (Key("every", "a time span", "how often a batch starts", required=True),),
)
SOURCE: Final = Section(
    "source",
    "`source`",
    (
        Key("topics", "a list of topics", "one of topics, pattern and assign"),
        Key("pattern", "a regular expression", "topics whose whole name matches, new ones too"),
        Key("assign", "`{TOPIC: [0, 1]}`", "single partitions"),
        Key(
            "from",
            "`earliest`, `latest`, `{timestamp: T}` or `{offsets: {TOPIC: {0: N}}}`",
            "where a pipeline without a checkpoint begins",
            "`earliest`",
        ),
        Key("to", "like `from`", "where a backfill ends; streams have no end"),
        Key("value", "a mapping", "what the bytes of a value are"),
        Key(
            "columns",
            "a list of key, topic, partition, offset, timestamp, timestampType",
            "which columns of the record are kept beside its value",
            "all but timestampType",
        ),
        Key("headers", "`true` or `false`", "a column `headers`", "`false`"),
        Key("max_rows_per_batch", "a number", "about how many records a batch takes", "all"),
        Key("commit_group", "a group", "publishes finished offsets, so that tools show the lag"),
        Key("options", "a mapping", 'other options of `format("headrace")`, `kafka.*` among them'),
    ),
)
FROM: Final = Section(
    "from",
    "`source.from` and `source.to`",
    (
        Key(
            "timestamp", "an ISO 8601 time (UTC without a zone) or milliseconds", "a record's time"
        ),
        Key("offsets", "`{TOPIC: {PARTITION: OFFSET}}`", "-2 is earliest, -1 latest"),
    ),
)
VALUE: Final = Section(
    "value",
    "`source.value`",
    (
        Key("format", "`json`, `avro`, `string` or `raw`", "how values are decoded", "`raw`"),
        Key("schema", "columns as in SQL, or an Avro schema", "fields of json and avro"),
        Key("as", "a name", "keeps the fields in one struct column", "each is a column"),
    ),
)
ON_BAD_RECORD: Final = Section(
    "on_bad_record",
    "`on_bad_record`",
    (Key("dead_letter", "a topic", "where bad records are sent", required=True),),
)
ON_LATE: Final = Section(
    "on_late",
    "`on_late`",
    (Key("fail", "a mapping", "stops the pipeline when too many rows were late", required=True),),
)
ON_LATE_FAIL: Final = Section(
    "on_late.fail",
    "`on_late.fail`",
    (
        Key(
            "at_most",
            "a share, as `5 %`",
            "of the rows of a query since the run began, looked at after each batch",
            required=True,
        ),
    ),
)
STEP: Final = Section(
    "a step",
    "A step: one of",
    (
        Key("filter", "a condition in SQL", "rows for which it is true"),
        Key("select", "a list of expressions in SQL", "the columns, as in `SELECT`"),
        Key("sql", "a query over `input`", "`SELECT ... FROM input`"),
        Key("window", "a mapping", "aggregates by time"),
        Key("dedup", "a mapping", "the first row of each key"),
        Key("join", "a mapping", "columns of a table that does not change"),
        Key("python", "a mapping", "a function over Arrow batches"),
        Key("stateful", "a mapping", "a StatefulProcessor with a state for each key"),
    ),
)
WINDOW: Final = Section(
    "window",
    "`window`",
    (
        Key("time", "a timestamp column", "the time of a row", required=True),
        Key("size", "a time span", "length of a window; one of size and session"),
        Key("slide", "a time span", "how far apart windows start", "size"),
        Key("session", "a time span", "a gap that ends a session"),
        Key("watermark", "a time span", "how late rows may come; needed by mode append"),
        Key("by", "a list of columns", "groups within a window"),
        Key("agg", "`{NAME: EXPRESSION}`", "columns to compute, as `n: count(*)`", required=True),
    ),
)
DEDUP: Final = Section(
    "dedup",
    "`dedup`",
    (
        Key("by", "a list of columns", "rows alike in these are one", required=True),
        Key("time", "a timestamp column", "the time of a row", required=True),
        Key("watermark", "a time span", "how far apart they may come", required=True),
    ),
)
JOIN: Final = Section(
    "join",
    "`join`",
    (
        Key("table", "a mapping", "what to join with, as it is at the start", required=True),
        Key("on", "a list of columns", "columns that both sides have", required=True),
        Key("how", "`left`, `inner`, `semi` or `anti`", "rows without a match", "`left`"),
    ),
)
TABLE: Final = Section(
    "table",
    "`join.table`",
    (
        Key("format", "`parquet`, `csv`, `delta` or `json`", "of its files", required=True),
        Key("path", "a path", "where it is", required=True),
        Key("options", "a mapping", "options of Spark's reader; not for delta"),
    ),
)
PYTHON: Final = Section(
    "python",
    "`python`",
    (
        Key(
            "function", "`FILE.py:NAME` or `MODULE:NAME`", "from batches to batches", required=True
        ),
        Key("schema", "columns as in SQL", "of what it yields", required=True),
    ),
)
STATEFUL: Final = Section(
    "stateful",
    "`stateful`",
    (
        Key("function", "`FILE.py:CLASS` or `MODULE:CLASS`", "a StatefulProcessor", required=True),
        Key("by", "a list of columns", "one state for each", required=True),
        Key("schema", "columns as in SQL", "of what it yields", required=True),
        Key("timers", "`none`, `processing-time` or `event-time`", "which it sets", "`none`"),
        Key("time", "a timestamp column", "the time of a row, for event-time"),
        Key("watermark", "a time span", "how late rows may come, for event-time"),
    ),
)
SINK: Final = Section(
    "a sink",
    "A sink: one of topic, delta, parquet and console",
    (
        Key("topic", "a mapping", "rows to a topic"),
        Key("delta", "a mapping", "rows to a Delta table"),
        Key("parquet", "a mapping", "rows to Parquet files"),
        Key("console", "a mapping", "rows to the terminal"),
        Key("name", "a name", "of its query and checkpoint", "the kind of sink"),
        Key("steps", "a list of steps", "for this sink alone, after those of the pipeline"),
    ),
)
TOPIC: Final = Section(
    "topic",
    "`topic`",
    (
        Key("name", "a topic", "where rows go", required=True),
        Key(
            "key",
            "a list of columns, or an expression",
            "a JSON object of columns, or text or bytes",
            "no key",
        ),
        Key(
            "value", "`json` or an expression", "the whole row as JSON, or text or bytes", "`json`"
        ),
        Key("headers", "an expression", "array<struct<key:string,value:binary>>", "no headers"),
        Key(
            "mode",
            "`append`, `update` or `complete`",
            "new rows, changed rows or all rows",
            "`append`",
        ),
        Key("delivery", "`at-least-once`", "what a restart may do", "`at-least-once`"),
        Key("options", "a mapping", "`kafka.*` settings of the producer"),
    ),
)
DELTA: Final = Section(
    "delta",
    "`delta`",
    (
        Key("path", "a directory", "that driver and executors share", required=True),
        Key("partition_by", "a list of columns", "`date` is made of `timestamp` if there is none"),
        Key(
            "mode",
            "`append` or `complete`",
            "add rows, or replace the table each batch",
            "`append`",
        ),
        Key(
            "other_queries", "`refuse` or `append`", "a table that another query wrote", "`refuse`"
        ),
        Key("upsert", "a mapping", "rows replace those with the same key"),
    ),
)
UPSERT: Final = Section(
    "upsert",
    "`delta.upsert`",
    (
        Key("on", "a list of columns", "the key of a row", required=True),
        Key("delete_when", "a condition in SQL", "rows that take theirs out of the table"),
        Key(
            "newest_by",
            "a list of columns",
            "which of several rows is the newest",
            "`timestamp`, `offset`",
        ),
        Key("columns", "a list of columns", "what the table has", "all columns"),
    ),
)
PARQUET: Final = Section(
    "parquet",
    "`parquet`",
    (
        Key("path", "a directory", "where files go", required=True),
        Key("partition_by", "a list of columns", "directories"),
    ),
)
CONSOLE: Final = Section(
    "console",
    "`console`",
    (
        Key("rows", "a number", "how many of a batch are shown", "20"),
        Key(
            "mode",
            "`append`, `update` or `complete`",
            "new rows, changed rows or all rows",
            "`append`",
        ),
    ),
)
SECTIONS: Final = (
    PIPELINE, TRIGGER, SOURCE, FROM, VALUE, ON_BAD_RECORD, ON_LATE, ON_LATE_FAIL, STEP, WINDOW,
    DEDUP, JOIN, TABLE, PYTHON, STATEFUL, SINK, TOPIC, DELTA, UPSERT, PARQUET, CONSOLE,
)  # fmt: skip
