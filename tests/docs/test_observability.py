"""The page about observing a broker says what there is: every metric, and only real fields."""

import ast
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from headrace.core.metrics import Metric
from headrace.node.log_lines import parse_template
from tests.docs.test_log_calls import SOURCE, log_calls
from tests.support.web import local_web

PAGE = (SOURCE.parents[1] / "docs" / "observability.md").read_text()
Row = tuple[str, tuple[str, ...]]


def documented() -> dict[str, Row]:
    """Kind and labels of the metrics in the page's table."""
    rows = re.findall(r"^\| `(\w+)` \| (counter|gauge|histogram) \| (.*?) \|", PAGE, re.MULTILINE)
    return {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}


def declared() -> Iterator[Metric]:
    """The metrics declared anywhere in the source."""
    for path in sorted(SOURCE.rglob("*.py")):
        if re.search(r"= Metric\(", path.read_text()):
            module = import_module(_module_name(path))
            yield from (each for each in vars(module).values() if isinstance(each, Metric))


def _module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)


def test_every_metric_is_documented_with_its_kind_and_labels() -> None:
    found = {each.name: (each.kind, each.labels) for each in declared()}
    assert found == documented(), "declared in src; in the table of docs/observability.md"


def test_what_a_broker_tells_is_what_is_documented() -> None:
    with local_web() as web:
        text = web.ask("GET", "/metrics").text
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    on_page = {name: kind for name, (kind, _) in documented().items()}
    assert kinds == on_page, "told by a broker (`NodeMetrics.collect` and others); on the page"
    for name, labels in re.findall(r"^(\w+)\{(.*)\} ", text, re.MULTILINE):
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        family = family if family in kinds else name
        found = tuple(re.findall(r'(?:^|,)(\w+)="', labels))
        assert found in (documented()[family][1], (*documented()[family][1], "le")), name


def test_the_line_of_a_request_on_the_page_has_the_fields_of_a_real_one() -> None:
    [shown] = re.findall(r"metering: request (api=.*)$", PAGE, re.MULTILINE)
    [real] = [
        shape.fields
        for _, call in log_calls()
        if isinstance(call.args[0], ast.Constant)
        and (shape := parse_template(call.args[0].value)) is not None
        and shape.sentence == "request"
    ]
    assert re.findall(r"(\w+)=", shown) == [name for name, _ in real]


def test_the_log_fields_on_the_page_exist() -> None:
    table = PAGE.partition("| field |")[2].partition("###")[0]
    on_page = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row[:60])}
    used = set()
    for _, call in log_calls():
        # That every call has this form is tested next door.
        shape = (
            parse_template(call.args[0].value) if isinstance(call.args[0], ast.Constant) else None
        )
        used |= {name for name, _ in shape.fields} if shape is not None else set()
    assert on_page - used == set()
    assert len(on_page) > 15
