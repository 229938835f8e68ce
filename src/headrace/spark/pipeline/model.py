"""What a pipeline is, once its file has been read: plain values, and where each was written."""

from dataclasses import dataclass
from typing import Final, Literal

from headrace.spark.pipeline.document import START, Location

# The one state store that transformWithState works with.
STATE_STORE: Final = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}

Mode = Literal["append", "update", "complete"]
ValueFormat = Literal["raw", "string", "json", "avro"]
TableFormat = Literal["parquet", "csv", "delta", "json"]
Timers = Literal["none", "processing-time", "event-time"]
Pairs = tuple[tuple[str, str], ...]
# Texts within a step and where each stands: Spark names columns, and not lines.
Parts = tuple[tuple[str, Location], ...]


@dataclass(frozen=True, slots=True)
class Value:
    """What the bytes of a record's value are; `column` keeps its fields in one struct."""

    format: ValueFormat = "raw"
    schema: str | None = None
    column: str | None = None

    @property
    def has_fields(self) -> bool:
        return self.format in ("json", "avro")


@dataclass(frozen=True, slots=True)
class Source:
    """Topics and how they are read; `options` are those of `format("headrace")`."""

    location: Location
    options: Pairs
    starting: Pairs
    ending: Pairs
    value: Value
    columns: tuple[str, ...]
    commit_group: str | None
    locations: tuple[tuple[str, Location], ...]

    def location_of_option(self, name: str) -> Location:
        """Which line of the file led to an option."""
        return dict(self.locations).get(name.lower(), self.location)


@dataclass(frozen=True, slots=True)
class Filter:
    location: Location
    condition: str


@dataclass(frozen=True, slots=True)
class Select:
    location: Location
    expressions: tuple[str, ...]
    parts: Parts = ()


@dataclass(frozen=True, slots=True)
class Sql:
    """A query over `input`; `first_line` is where it starts if it has lines of its own."""

    location: Location
    query: str
    first_line: int | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """Aggregates by time: windows of one size, or sessions that end after a gap."""

    location: Location
    time: str
    size: str | None
    slide: str | None
    session: str | None
    watermark: str | None
    by: tuple[str, ...]
    agg: Pairs
    parts: Parts = ()


@dataclass(frozen=True, slots=True)
class Dedup:
    location: Location
    by: tuple[str, ...]
    time: str
    watermark: str


@dataclass(frozen=True, slots=True)
class Join:
    """A table that does not change while the pipeline runs."""

    location: Location
    format: TableFormat
    path: str
    options: Pairs
    on: tuple[str, ...]
    how: Literal["left", "inner", "semi", "anti"]


@dataclass(frozen=True, slots=True)
class Python:
    """A function over Arrow batches."""

    location: Location
    function: str
    schema: str


@dataclass(frozen=True, slots=True)
class Stateful:
    """A StatefulProcessor, one state for each value of `by`."""

    location: Location
    function: str
    by: tuple[str, ...]
    schema: str
    timers: Timers
    time: str | None
    watermark: str | None


Step = Filter | Select | Sql | Window | Dedup | Join | Python | Stateful


@dataclass(frozen=True, slots=True)
class TopicTarget:
    location: Location
    topic: str
    key: str | tuple[str, ...] | None
    value: str
    headers: str | None
    mode: Mode
    options: Pairs


@dataclass(frozen=True, slots=True)
class Upsert:
    """Rows by their key: the newest of a batch goes into the table, or takes a row out of it."""

    location: Location
    on: tuple[str, ...]
    delete_when: str | None
    newest_by: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    location: Location
    path: str
    partition_by: tuple[str, ...]
    mode: Literal["append", "complete"]
    other_queries: Literal["refuse", "append"]
    upsert: Upsert | None


@dataclass(frozen=True, slots=True)
class ParquetTarget:
    location: Location
    path: str
    partition_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConsoleTarget:
    location: Location
    rows: int
    mode: Mode


Target = TopicTarget | DeltaTarget | ParquetTarget | ConsoleTarget


@dataclass(frozen=True, slots=True)
class Sink:
    """One streaming query: steps of its own, then where the rows go."""

    name: str
    location: Location
    target: Target
    steps: tuple[Step, ...] = ()
    locations: tuple[tuple[str, Location], ...] = ()

    def location_of(self, key: str) -> Location:
        """Where a key of the target stands."""
        return dict(self.locations).get(key, self.location)


@dataclass(frozen=True, slots=True)
class OnLate:
    """How many rows may come too late: a share of those of a run, or None for any number."""

    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """A whole pipeline."""

    name: str
    bootstrap_servers: str | None
    checkpoint: str
    every: str | None
    once: bool
    source: Source
    dead_letter_topic: str | None
    on_late: OnLate
    settings: Pairs
    steps: tuple[Step, ...]
    sinks: tuple[Sink, ...]
    locations: tuple[tuple[str, Location], ...] = ()

    def location_of(self, key: str) -> Location:
        """Where a key of the pipeline itself stands."""
        return dict(self.locations).get(key, START)

    def location_of_setting(self, name: str) -> Location:
        """Where a setting of Spark stands; the command line's are told where those would."""
        return dict(self.locations).get(f"settings.{name}", self.location_of("settings"))

    def steps_of(self, sink: Sink) -> tuple[Step, ...]:
        """What a sink's rows go through."""
        return (*self.steps, *sink.steps)

    @property
    def spark_settings(self) -> dict[str, str]:
        """Settings of Spark, with those that a step cannot do without."""
        steps = [step for sink in self.sinks for step in self.steps_of(sink)]
        needed = STATE_STORE if any(isinstance(step, Stateful) for step in steps) else {}
        return {**needed, **dict(self.settings)}

    def query_name(self, sink: Sink) -> str:
        return f"{self.name}-{sink.name}"

    def checkpoint_of(self, sink: Sink) -> str:
        return f"{self.checkpoint.rstrip('/')}/{sink.name}"
