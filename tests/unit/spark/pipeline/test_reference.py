"""The tables of the guide say what the code accepts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.pipeline import sections
from headrace.spark.pipeline.fields import Section
from headrace.spark.pipeline.reference import reference
from tests.unit.spark.pipeline.test_mistakes import mistakes

PAGE = Path(__file__).resolve().parents[4] / "docs" / "pipelines.md"


def test_the_guide_ends_with_the_tables_of_the_code() -> None:
    assert PAGE.read_text().endswith("## Reference\n\n" + reference())


def test_every_section_is_in_the_reference() -> None:
    found = [each for each in vars(sections).values() if isinstance(each, Section)]
    assert found == list(sections.SECTIONS)


@pytest.mark.parametrize("section", sections.SECTIONS, ids=lambda section: section.name)
def test_every_key_says_what_it_holds_and_means(section: Section) -> None:
    assert len(set(section.names)) == len(section.keys)
    assert all(key.holds and key.meaning for key in section.keys)


def test_unknown_keys_are_refused_with_those_of_the_reference() -> None:
    allowed = ", ".join(sections.PIPELINE.names)
    assert mistakes("surely: not\n")[0].endswith(f"allowed are {allowed}")
