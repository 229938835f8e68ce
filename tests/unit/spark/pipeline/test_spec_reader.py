"""A pipeline's file: what it means, and every mistake at its line; no Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.pipeline import Pipeline, PipelineInvalid, load
from headrace.spark.pipeline.model import DeltaTarget, Filter, TopicTarget, Window

SMALL = """
name: clicks
checkpoint: /data/checkpoints/clicks
source: {topics: [clicks]}
sinks:
  - console:
"""


def problems(text: str, **variables: str) -> list[str]:
    """What is wrong, as `line:column: message`."""
    with pytest.raises(PipelineInvalid) as raised:
        load(text, variables)
    return [f"{each.line}:{each.column}: {each.message}" for each in raised.value.problems]


def test_a_small_pipeline_is_read() -> None:
    spec = load(SMALL).spec
    assert spec.name == "clicks"
    assert dict(spec.source.options) == {"subscribe": "clicks"}
    assert spec.source.starting == (("startingOffsets", "earliest"),)
    assert [sink.name for sink in spec.sinks] == ["console"]


def test_steps_and_sinks_keep_their_order_and_their_lines() -> None:
    text = SMALL + (
        "  - topic: {name: out, key: [window, item], mode: update}\n"
        "    steps:\n"
        "      - filter: price > 0\n"
        "      - window: {time: at, size: 1 minute, by: [item], agg: {n: count(*)}}\n"
    )
    sink = load(text).spec.sinks[1]
    assert isinstance(sink.target, TopicTarget)
    assert sink.target.key == ("window", "item")
    first, second = sink.steps
    assert (type(first), first.location.line) == (Filter, 9)
    assert isinstance(second, Window)
    assert (second.location.line, second.agg) == (10, (("n", "count(*)"),))


@pytest.mark.parametrize(
    ("written", "at_most"),
    [
        ("", None),
        ("on_late: count\n", None),
        ("on_late: fail\n", 0.0),
        ("on_late: {fail: {at_most: 5 %}}\n", 0.05),
        ("on_late: {fail: {at_most: 0.5%}}\n", 0.005),
    ],
)
def test_how_many_rows_may_be_late(written: str, at_most: float | None) -> None:
    assert load(SMALL + written).spec.on_late.at_most == at_most


def test_the_newest_row_is_not_told_by_offsets_alone() -> None:
    """A key that comes to another partition goes on at smaller offsets."""
    target = load(SMALL + "  - delta: {path: /a, upsert: {on: [id]}}\n").spec.sinks[1].target
    assert isinstance(target, DeltaTarget)
    assert target.upsert is not None
    assert target.upsert.newest_by == ("timestamp", "offset")


def test_every_mistake_is_told_at_once() -> None:
    text = SMALL.replace("name:", "nam:").replace("topics", "topic")
    found = problems(text)
    assert len(found) == 4
    assert found[0].startswith("2:1: the pipeline has no 'nam': did you mean 'name'?")


def test_variables_are_put_in_and_have_defaults() -> None:
    text = SMALL.replace("[clicks]", '["${TOPIC}-${STAGE:-test}", "a$${b}"]')
    spec = load(text, {"TOPIC": "clicks"}).spec
    assert dict(spec.source.options)["subscribe"] == "clicks-test,a${b}"


def test_a_variable_that_is_not_set_is_told_with_its_line() -> None:
    found = problems(SMALL.replace("[clicks]", '["${TOPIC}"]'))
    assert found[0] == "4:19: the variable TOPIC is not set; ${TOPIC:-...} gives it a default"


def test_relative_paths_start_at_the_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "clicks.yaml"
    path.parent.mkdir()
    path.write_text(SMALL.replace("/data/", "data/"))
    assert load(path).spec.checkpoint == f"{path.parent}/data/checkpoints/clicks"
    assert load(str(path)).file == str(path)


def test_queries_and_checkpoints_are_named_after_pipeline_and_sink() -> None:
    pipeline: Pipeline = load(SMALL)
    [sink] = pipeline.spec.sinks
    assert pipeline.query_names == ("clicks-console",)
    assert pipeline.spec.checkpoint_of(sink) == "/data/checkpoints/clicks/console"


def test_options_have_their_proper_names_whatever_their_capitals() -> None:
    options = "{MINPARTITIONS: 3, Kafka.Client.Id: me}"
    spec = load(SMALL.replace("[clicks]", f"[clicks], options: {options}")).spec
    found = dict(spec.source.options)
    assert found == {"subscribe": "clicks", "minPartitions": "3", "kafka.client.id": "me"}
