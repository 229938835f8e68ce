"""A picture of a cluster as tables."""

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.cli.output import UNKNOWN, size
from headrace.cli.top.rates import GroupRow, TopicRow, TopView


def render(view: TopView, rows: int) -> RenderableType:
    """Figures of the whole, the busiest topics, the groups most behind."""
    parts: list[RenderableType] = [_heading(view), _totals(view)]
    parts.append(_topics(view.topics, rows))
    parts.append(_groups(view.groups, rows))
    return Group(*parts)


def _heading(view: TopView) -> Text:
    brokers = f"{view.brokers} broker{'s' if view.brokers != 1 else ''}"
    text = Text.assemble(
        ("headrace top", "bold"), f"  {view.time}  cluster {view.cluster_id}  {brokers}"
    )
    if view.trouble:
        text.append(f"\nnot fresh: {view.trouble}", "bold red")
    return text


def _totals(view: TopView) -> Table:
    table = _table("", "msgs/s", "bytes/s", "requests/s", "errors/s", "connections")
    table.add_row(
        "in",
        rate(view.messages_in),
        size(view.bytes_in),
        rate(view.requests),
        rate(view.errors),
        UNKNOWN if view.connections is None else f"{view.connections:,}",
    )
    table.add_row("out", rate(view.messages_out), size(view.bytes_out), "", "", "")
    return table


def _topics(topics: list[TopicRow], rows: int) -> Table:
    rates = ("msgs in/s", "bytes in/s", "msgs out/s", "bytes out/s")
    table = _table("topic", "partitions", "records", "size", *rates)
    for row in topics[:rows]:
        table.add_row(
            Text(row.topic),
            f"{row.partitions:,}",
            f"{row.records:,}",
            size(row.size_bytes),
            rate(row.messages_in),
            size(row.bytes_in),
            rate(row.messages_out),
            size(row.bytes_out),
        )
    _note_rest(table, len(topics) - rows)
    return table


def _groups(groups: list[GroupRow], rows: int) -> Table:
    table = _table("group", "state", "lag", "lag change/s")
    table.columns[1].justify = "left"
    for row in groups[:rows]:
        change = UNKNOWN if row.lag_change is None else f"{row.lag_change:+,.0f}"
        lag = UNKNOWN if row.lag is None else f"{row.lag:,}"
        table.add_row(Text(row.group), row.state, lag, change)
    _note_rest(table, len(groups) - rows)
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(first, justify="left", overflow="fold")
    for other in others:
        table.add_column(other, justify="right", no_wrap=True)
    return table


def _note_rest(table: Table, more: int) -> None:
    if more > 0:
        table.add_row(Text(f"and {more:,} more", "dim"))


def rate(value: float | None) -> str:
    """So many per second; a decimal while there are few."""
    if value is None:
        return UNKNOWN
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"
