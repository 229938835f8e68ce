"""The page about watching pipelines names every metric, and every example."""

import re
from pathlib import Path

from headrace.spark.progress.prometheus import OF_LAST_BATCH, OF_QUERY, OF_TOPIC

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "pipelines-watch.md").read_text()


def test_every_metric_of_pipelines_is_documented_as_it_is() -> None:
    rows = re.findall(
        r"^\| `(headrace_pipeline_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE
    )
    on_page = [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), told)
        for name, kind, labels, told in rows
    ]
    assert on_page == [
        (each.name, each.kind, each.labels, each.help)
        for each in (*OF_QUERY, *OF_LAST_BATCH, *OF_TOPIC)
    ]


def test_metrics_in_queries_exist() -> None:
    known = {each.name for each in (*OF_QUERY, *OF_LAST_BATCH, *OF_TOPIC)}
    named = set(re.findall(r"headrace_pipeline_\w+", PAGE))
    assert {name.removesuffix("_bucket") for name in named} == known


def test_the_list_of_examples_is_that_of_their_directory() -> None:
    listed = re.findall(r"^\| \[`[a-z-]+\.yaml`\].*$", PAGE, re.MULTILINE)
    theirs = re.findall(
        r"^\| \[`[a-z-]+\.yaml`\].*$", (ROOT / "examples" / "README.md").read_text(), re.MULTILINE
    )
    assert [each.replace("](../examples/", "](") for each in listed] == theirs
