"""Each mistake in a pipeline's file, told at its line with what is allowed."""

from __future__ import annotations

import pytest

from headrace.spark.pipeline import PipelineInvalid, load

FILE = """\
name: clicks
checkpoint: /data/checkpoint
source:
  topics: [clicks]
  value: {format: json, schema: "item int, at timestamp"}
sinks:
  - console:
"""
WINDOW = "window: {time: at, size: 1 minute, watermark: 1 minute, agg: {n: count(*)}}"


def mistakes(text: str) -> list[str]:
    with pytest.raises(PipelineInvalid) as raised:
        load(text, {})
    return [f"{each.line}: {each.message}" for each in raised.value.problems]


def in_source(line: str) -> str:
    return FILE.replace("  topics: [clicks]\n", f"  topics: [clicks]\n  {line}\n")


def value_is(text: str) -> str:
    lines = FILE.splitlines(keepends=True)
    return "".join(lines[:4]) + f"  value: {text}\n" + "".join(lines[5:])


def with_step(step: str) -> str:
    return FILE + f"steps:\n  - {step}\n"


def with_sink(sink: str, steps: str = "[]") -> str:
    return FILE + f"  - {sink}\n    steps: {steps}\n"


CASES = [
    (FILE.replace("name: clicks", "name: My Clicks"), "1: name: 'My Clicks' must be made of a-z"),
    (FILE.replace("checkpoint: /data/checkpoint\n", ""), "1: the pipeline needs 'checkpoint'"),
    (FILE.replace("  - console:\n", "  []\n"), "6: sinks: is empty; a pipeline has at least one"),
    (FILE + "trigger: {every: often}\n", "8: every: 'often' is no time span such as 30 seconds"),
    (FILE + "trigger: [a]\n", "8: trigger must be a mapping with every"),
    (FILE + "settings: {shuffle: 3}\n", "8: 'shuffle' is no setting of Spark: those are spark.*"),
    (FILE + "settings: 3\n", "8: settings must be a mapping"),
    (FILE + "on_bad_record: ignore\n", "8: on_bad_record: 'ignore' is not column or {dead_letter"),
    (FILE + "on_bad_record: {}\n", "8: on_bad_record needs 'dead_letter'"),
    (FILE + "on_bad_record: {dead_letter: }\n", "8: dead_letter: is empty"),
    (FILE + "on_bad_record: {dead_letter: clicks}\n", "8: dead_letter: topic 'clicks' is read by"),
    (FILE.replace("topics: [clicks]", "pattern: c.*") + "on_bad_record: {dead_letter: c.dlq}\n",
     "8: dead_letter: topic 'c.dlq' is read by the source"),
    (FILE + "on_late: drop\n", "8: on_late: 'drop' is not count, fail or {fail: {at_most: 5 %}}"),
    (FILE + "on_late: [fail]\n", "8: on_late: is not count, fail or {fail: {at_most: 5 %}}"),
    (FILE + "on_late: {fail: }\n", "8: fail: is empty; it holds a mapping"),
    (FILE + "on_late: {fail: {}}\n", "8: on_late.fail needs 'at_most'"),
    (FILE + "on_late: {fail: {at_most: 5}}\n", "8: at_most: '5' is no share such as 5 %"),
    (FILE + "on_late: {fail: {at_most: 101 %}}\n", "8: at_most: '101 %' is no share"),
    (FILE + "on_late: {topic: late}\n", "8: on_late: topic: late rows cannot be kept yet, since a"),
    (in_source("options: {watermarkCheckpoint: /a}"), "5: watermarkCheckpoint is set by the key"),
    # the source
    (in_source("pattern: c.*"), "5: topics and pattern are both given: which topics are read"),
    (FILE.replace("[clicks]", "[]"), "4: topics: is empty; it holds a list of topics"),
    (FILE.replace("[clicks]", "[{a: b}]"), "4: topics is a mapping, and must be text"),
    (FILE.replace("topics: [clicks]", "pattern: '('"), "4: subscribePattern='(' is no regular"),
    (FILE.replace("topics: [clicks]", "assign: {clicks: [x]}"), "4: assign="),
    (FILE.replace("topics: [clicks]", "assign: clicks"), "4: assign: must be a mapping of topics"),
    (in_source("from: yesterday"), "5: from: 'yesterday' is not earliest, latest, {timestamp"),
    (in_source("from: {timestamp: soon}"), "5: timestamp: 'soon' is no time such as 2026-01-31"),
    (in_source("from: {timestamp: 2026-01-31, offsets: {}}"), "5: timestamp and offsets are both"),
    (in_source("from: {offsets: {clicks: {0: x}}}"), "5: "),
    (in_source("to: earliest"), "5: endingOffsets: a batch read cannot end at the earliest"),
    (in_source("max_rows_per_batch: -3"), "5: max_rows_per_batch: '-3' is not a whole number"),
    (in_source("headers: maybe"), "5: headers: 'maybe' is not one of true, false"),
    (in_source("columns: [time]"), "5: columns: a record has no 'time': did you mean 'timestamp'?"),
    (in_source("options: {subscribe: a}"), "5: subscribe is set by the key 'topics'"),
    (in_source("options: {failOnDataLos: a}"), "5: the source has no 'failOnDataLos': did you mea"),
    (in_source("options: {kafka.linger.ms: 3}"), "5: option 'kafka.linger.ms' has no meaning here"),
    (in_source("options: {minPartitions: no}"), "5: minPartitions='no' is not a whole number"),
    (value_is("{format: json}"), "5: format: json needs 'schema'"),
    (value_is("{format: raw, as: a}"), "5: as: is for format json or avro, not raw"),
    (value_is('{format: json, schema: "a int,"}'), "5: schema 'a int,' is not columns such as"),
    (value_is('{format: json, schema: "a int, Offset int"}'), "5: the value has a field 'Offset'"),
    (value_is('{format: json, schema: "a int", as: key}'), "5: the value has a field 'key'"),
    (value_is("{format: avro, schema: nonsense}"), "5: valueSchema is no Avro schema in JSON"),
    # steps
    (FILE + "steps: {filter: a}\n", "8: steps must be a list; it holds a list of steps"),
    (with_step("filter"), "9: a step is a mapping with one of filter, select"),
    (with_step("{filter: a, sql: b}"), "9: filter and sql are both given: a step does one thing"),
    (with_step("{}"), "9: one of filter, select"),
    (with_step("filter:"), "9: filter: is empty; it holds a condition in SQL"),
    (with_step("select: []"), "9: select: is empty"),
    (with_step("window: {time: at, agg: {n: count(*)}}"), "9: one of size, session is needed"),
    (with_step("window: {time: at, session: 1 minute, slide: 1 minute, agg: {n: count(*)}}"),
     "9: slide: sessions do not slide"),
    (with_step("window: {time: at, session: 1 minute, watermark: 1 minute, agg: {n: count(*)}}"),
     "9: a session takes `by`: Spark keeps no sessions of all rows together"),
    (with_step("window: {size: 1 minute, agg: {}}"), "9: window needs 'time': the time of a row"),
    (with_step("dedup: {by: [item], time: at}"), "9: dedup needs 'watermark'"),
    (with_step("join: {table: {format: orc, path: x}, on: [item]}"), "9: format: 'orc' is not one"),
    (with_step("join: {table: {format: delta, path: x, options: {a: b}}, on: [item]}"),
     "9: options: a Delta table is read without options"),
    (with_step("join: {table: {format: csv, path: x}, on: [item], how: full}"), "9: how: 'full'"),
    (with_step("python: {function: nothing, schema: a int}"), "9: function: 'nothing' is neither"),
    (with_step("python: {function: 'none.py:f', schema: a int}"), "9: function: there is no file"),
    (with_step("stateful: {function: 'a:B', by: [item], schema: a int, timers: event-time}"),
     "9: timers: event-time needs 'time' too"),
    (with_step("stateful: {function: 'a:B', by: [item], schema: a int, time: at}"),
     "9: time: is for timers: event-time; leave it out"),
    # sinks
    (FILE + "  - nowhere: {}\n", "8: a sink has no 'nowhere': allowed are topic, delta, parquet"),
    (FILE + "  - console\n", "8: a sink is a mapping with one of topic, delta, parquet, console"),
    (FILE + "  - console:\n", "8: the sink of line 7 is called 'console' too: give this one a"),
    (with_sink("{parquet: {path: /a}, delta: {path: /b}}").replace("    steps: []\n", ""),
     "8: parquet and delta are both given: a sink is one place"),
    (with_sink("topic: {name: out, delivery: exactly-once}"), "8: delivery=exactly-once needs"),
    (with_sink("topic: {name: clicks}"), "8: topic 'clicks' is read by the source, so that"),
    (with_sink("topic: {name: clicks, options: {kafka.bootstrap.servers: 'a:1'}}")
     + "bootstrap_servers: a:1\n", "8: topic 'clicks' is read by the source, so that"),
    (with_sink("topic: {name: out, delivery: perhaps}"), "8: delivery='perhaps' is not known"),
    (with_sink("topic: {name: out, options: {kafka.acks: 1}}"), "8: kafka.acks must be all"),
    (with_sink("topic: {name: out, options: {linger: 1}}"), "8: unknown option 'linger'"),
    (with_sink("topic: {name: out, mode: all}"), "8: mode: 'all' is not one of append, update"),
    (with_sink("delta: {path: 's3://bucket/a'}"), "8: path='s3://bucket/a' must be an absolute"),
    (with_sink("delta: {path: /a, mode: append, upsert: {on: [a]}}"), "8: mode: an upsert has no"),
    (with_sink("delta: {path: /a, upsert: {}}"), "8: upsert needs 'on'"),
    (with_sink("parquet: {path: /data/checkpoint/console/files}"),
     "8: /data/checkpoint/console is a checkpoint of this pipeline: choose another"),
    (with_sink("parquet: {path: /a, mode: update}"), "8: parquet has no 'mode'"),
    (with_sink("console: {rows: 0}\n    name: own"), "8: rows: '0' is not a whole number above 0"),
    (with_sink("delta: {path: /a}") + "  - parquet: {path: /a}\n",
     "10: the sink of line 8 writes to this path too"),
    (with_sink("delta: {path: /a/b}") + "  - parquet: {path: 'file:///a//c/../b/'}\n",
     "10: the sink of line 8 writes to this path too"),
    (with_sink("parquet: {path: 's3a://b/c'}\n    name: x") + "  - parquet: {path: 's3a://b/c/'}\n",
     "11: the sink of line 8 writes to this path too"),
    # output modes and watermarks
    (with_sink("delta: {path: /a}", "[{" + WINDOW.replace("watermark: 1 minute, ", "") + "}]"),
     "8: mode append gives out a window once it is over, which takes a watermark"),
    (with_sink("topic: {name: a, mode: update}", "[{" + WINDOW.replace("size", "session") + "}]"),
     "8: mode update cannot follow sessions (line 9)"),
    (with_sink("delta: {path: /a}",
               "[{dedup: {by: [item], time: at, watermark: 2 minutes}}, {" + WINDOW + "}]"),
     "9: 'at' has a watermark of 2 minutes since line 9: use the same here"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), CASES, ids=[said[:50] for _, said in CASES])
def test_a_mistake_is_told_at_its_line(text: str, said: str) -> None:
    found = mistakes(text)
    assert any(each.startswith(said) for each in found), found


def test_the_file_of_these_cases_has_no_mistake() -> None:
    assert load(FILE, {}).name == "clicks"
    assert load(with_sink("delta: {path: /a}", "[{" + WINDOW + "}]"), {}).name == "clicks"


def test_a_topic_of_another_cluster_may_have_the_name_of_the_one_that_is_read() -> None:
    copied = with_sink("topic: {name: clicks, options: {kafka.bootstrap.servers: 'far:1'}}")
    assert load(copied + "bootstrap_servers: near:1\n", {}).name == "clicks"


def test_a_field_of_the_records_own_name_may_replace_it() -> None:
    text = value_is('{format: json, schema: "a int, offset int"}').replace(
        "  topics", "  columns: [key]\n  topics"
    )
    assert load(text, {}).spec.source.columns == ("key",)


def test_of_a_missing_variable_nothing_else_is_told() -> None:
    assert mistakes(FILE.replace("/data/checkpoint", "${NOWHERE}")) == [
        "2: the variable NOWHERE is not set; ${NOWHERE:-...} gives it a default"
    ]


@pytest.mark.parametrize("text", ["a: [1\n", "name: x\n\tsinks: []\n", "---\n# nothing\n"])
def test_of_a_file_that_is_no_yaml_nothing_else_is_told(text: str) -> None:
    assert len(mistakes(text)) == 1
