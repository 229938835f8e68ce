"""What the README of the examples says about their topics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headrace.spark.pipeline import load
from headrace.spark.pipeline.model import TopicTarget

EXAMPLES = Path(__file__).parents[4] / "examples"
FILES = sorted(EXAMPLES.glob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_the_topics_of_an_example_are_made_by_a_line_of_the_readme(file: Path) -> None:
    spec = load(file, {}).spec
    wanted = set(dict(spec.source.options)["subscribe"].split(","))
    wanted |= {sink.target.topic for sink in spec.sinks if isinstance(sink.target, TopicTarget)}
    wanted |= {spec.dead_letter_topic} if spec.dead_letter_topic else set()
    readme = (EXAMPLES / "README.md").read_text()
    made = re.search(rf"^# {re.escape(file.name)}\nfor topic in ([^;]*); do", readme, re.MULTILINE)
    assert made is not None
    assert set(made[1].split()) == wanted
