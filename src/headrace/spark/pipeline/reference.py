"""The tables of the guide, made from the sections that decide what a file may hold."""

from headrace.spark.pipeline.fields import Key, Section
from headrace.spark.pipeline.sections import SECTIONS


def reference() -> str:
    """Every key of every mapping, as Markdown."""
    return "\n".join(_table(section) for section in SECTIONS)


def _table(section: Section) -> str:
    lines = [f"### {section.title}", "", "| key | holds | meaning | default |", "|---|---|---|---|"]
    return "\n".join([*lines, *(_row(key) for key in section.keys), ""])


def _row(key: Key) -> str:
    default = "required" if key.required else key.default
    cells = (f"`{key.name}`", key.holds, key.meaning, default)
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"
