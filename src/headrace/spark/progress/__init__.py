"""How a streaming query is doing: rows per second, lag, batch time, state.

    with watch(spark, report=Path("clicks.html"), metrics="127.0.0.1:9404") as watching:
        ...
    watching.history

`watch` listens to Spark's own progress events, so it works with every query and every source, and
knows lag where offsets have the shape of Kafka's. Each finished batch becomes a `Progress`, which
is shown in the terminal, counted for Prometheus, appended to a history beside the report, and
drawn. Nothing here touches records, and no failure here stops a query.

    watching, measures, late        Spark's events into numbers
    history, atomic_write           kept in a file
    terminal, prometheus, report    where they are shown
    series, axes, svg, figures      lines over time, and how they are drawn
"""

from headrace.spark.progress.measures import Progress
from headrace.spark.progress.watching import Watching, watch

__all__ = ["Progress", "Watching", "watch"]
