"""Archives: files of records with their topic, partition and offset, to be checked and replayed.

A Delta table, what Spark's own Parquet sink wrote (whose list of finished files is obeyed), or
plain Parquet files. Offsets of a log have gaps of their own where transactions ended or
compaction ran, so a gap is something to look at, not always a loss.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from headrace.client import ClientSettings, ProducerSettings
from headrace.core.errors import ErrorCode, HeadraceError, InvalidConfig
from headrace.spark import delta_table
from headrace.spark.delivery import Delivery, DeliveryOptions
from headrace.spark.encode import Ints

_OFFSET_COLUMNS: Final = ("topic", "partition", "offset")
_PIECE_ROWS: Final = 10_000
_COMPACT: Final = ".compact"


@dataclass(slots=True)
class PartitionFindings:
    """What an archive holds of one partition; gaps and ends are inclusive offsets."""

    topic: str
    partition: int
    rows: int = 0
    first: int = -1
    last: int = -1
    duplicates: int = 0
    gaps: list[tuple[int, int]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not self.gaps and not self.duplicates


Runs = list[tuple[int, int]]


class ArchiveDamaged(HeadraceError):
    """Files that cannot be read; `findings` is what the others hold, where that was looked at."""

    code = ErrorCode.INVALID_RECORD

    def __init__(self, files: Sequence[str], findings: Sequence[PartitionFindings] = ()) -> None:
        super().__init__("\n".join(files))
        self.files = tuple(files)
        self.findings = tuple(findings)


def verify(path: Path) -> list[PartitionFindings]:
    """Look for offsets that are missing between others or are there more than once.

    Raises ArchiveDamaged where files cannot be read, once all the others have been.
    """
    found: dict[tuple[str, int], tuple[int, Runs]] = {}
    archive = _Archive(path)
    damaged = list(archive.damaged)
    for piece in archive.pieces():
        try:
            scanned = list(_offsets_by_partition(piece.to_batches(_OFFSET_COLUMNS)))
        except ArchiveDamaged as error:
            damaged += error.files
            continue
        for key, offsets in scanned:
            rows, runs = found.get(key, (0, []))
            found[key] = rows + len(offsets), runs + _runs(np.sort(offsets))
    findings = [_judge(*key, *found[key]) for key in sorted(found)]
    if damaged:
        raise ArchiveDamaged(damaged, findings)
    return findings


def _runs(offsets: Ints) -> Runs:
    """Sorted offsets as stretches without a gap; those that are there twice count once."""
    unique = np.unique(offsets)
    breaks = np.flatnonzero(np.diff(unique) > 1)
    starts = unique[np.concatenate(([0], breaks + 1))]
    ends = unique[np.concatenate((breaks, [len(unique) - 1]))]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _judge(topic: str, partition: int, rows: int, runs: Runs) -> PartitionFindings:
    findings = PartitionFindings(topic, partition, rows)
    distinct = 0
    for start, end in sorted(runs):
        if findings.first < 0:
            findings.first, findings.last = start, start - 1
        if start > findings.last + 1:
            findings.gaps.append((findings.last + 1, start - 1))
        distinct += max(0, end - max(start - 1, findings.last))
        findings.last = max(findings.last, end)
    findings.duplicates = rows - distinct
    return findings


def replay(path: Path, client: ClientSettings, *, to: str, topic: str | None, by_key: bool) -> int:
    """Send an archived topic's records in their order, each offset once; how many there were.

    Keys, values, headers and times are kept, and partitions too unless `by_key` is set.
    """
    archive = _Archive(path)
    if archive.damaged:
        raise ArchiveDamaged(archive.damaged)
    chosen, places = _chosen(archive, topic)
    columns = tuple(
        name
        for name in ("key", "value", "headers", "partition")
        if name in archive.names and not (by_key and name == "partition")
    )
    archive.require("value", "timestamp")
    options = DeliveryOptions(client, ProducerSettings(batch_bytes=256 * 1024), to, columns)
    with Delivery(options) as delivery:
        count = delivery.partition_count(to)
        if not by_key and max(places) >= count:
            raise InvalidConfig(
                f"topic {to!r} has partitions 0 to {count - 1}, not {max(places)} as the archive: "
                "add some, or choose partitions by key"
            )
        for partition, pieces in sorted(places.items()):
            for together in _overlapping(pieces):
                _send(delivery, together, chosen, partition, (*columns, "timestamp"))
        delivery.flush()
        return delivery.rows


_Span = tuple[int, int, "_Piece"]


def _chosen(archive: "_Archive", topic: str | None) -> tuple[str, dict[int, list[_Span]]]:
    """The topic to replay, and for each of its partitions which pieces hold which offsets."""
    spans: dict[str, dict[int, list[_Span]]] = {}
    for piece in archive.pieces():
        ends: dict[tuple[str, int], tuple[int, int]] = {}
        for key, offsets in _offsets_by_partition(piece.to_batches(_OFFSET_COLUMNS)):
            least, most = ends.get(key, (int(offsets.min()), int(offsets.max())))
            ends[key] = min(least, int(offsets.min())), max(most, int(offsets.max()))
        for (name, partition), (least, most) in ends.items():
            spans.setdefault(name, {}).setdefault(partition, []).append((least, most, piece))
    if topic is None and len(spans) == 1:
        topic = next(iter(spans))
    if topic is None:
        raise InvalidConfig(
            f"the archive has {len(spans)} topics: choose one of {', '.join(sorted(spans))} by "
            "topic (--topic)"
        )
    if topic not in spans:
        raise InvalidConfig(f"the archive has no topic {topic!r}; it has {sorted(spans)}")
    return topic, spans[topic]


def _overlapping(spans: Sequence[_Span]) -> Iterator[list["_Piece"]]:
    """Pieces in the order of their offsets; those whose offsets overlap come together."""
    together: list[_Piece] = []
    end = -1
    for least, most, piece in sorted(spans, key=lambda span: span[:2]):
        if together and least > end:
            yield together
            together = []
        together.append(piece)
        end = max(end, most)
    if together:
        yield together


def _send(
    delivery: Delivery, pieces: Sequence["_Piece"], topic: str, partition: int, names: Sequence[str]
) -> None:
    wanted = (pc.field("topic") == topic) & (pc.field("partition") == partition)
    tables = [piece.to_table((*names, "offset"), wanted) for piece in pieces]
    table = pa.concat_tables(tables).sort_by("offset")
    offsets = table.column("offset").to_numpy()
    table = table.filter(pa.array(np.diff(offsets, prepend=-1) > 0))
    for batch in table.combine_chunks().to_batches(max_chunksize=_PIECE_ROWS):
        times = batch.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
        delivery.send(batch, times.to_numpy() // 1000)


class _Piece:
    """One file of an archive, with the columns that its directories stand for."""

    def __init__(self, fragment: Any, schema: pa.Schema) -> None:
        self._fragment, self._schema = fragment, schema

    def to_batches(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with self._read():
            yield from self._fragment.to_batches(schema=self._schema, columns=list(names))

    def to_table(self, names: Sequence[str], wanted: Any) -> pa.Table:
        with self._read():
            return self._fragment.to_table(schema=self._schema, columns=list(names), filter=wanted)

    @contextmanager
    def _read(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError) as error:
            raise ArchiveDamaged([_unreadable(self._fragment.path, error)]) from error


def _unreadable(path: object, error: Exception) -> str:
    return f"{path} cannot be read: {str(error).splitlines()[0]}"


class _Archive:
    """The files that count, whoever wrote them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._dataset, self.damaged = _dataset(path.resolve())
        self.names: list[str] = self._dataset.schema.names
        self.require(*_OFFSET_COLUMNS)

    def require(self, *names: str) -> None:
        for name in names:
            if name not in self.names:
                raise InvalidConfig(
                    f"{self._path} has no column {name!r}, so it is no archive of records; it has "
                    f"{', '.join(self.names)}"
                )
        if "value" in names:
            kind = self._dataset.schema.field("value").type
            if not any(is_kind(kind) for is_kind in _BYTES):
                raise InvalidConfig(
                    f"values are {kind} in {self._path}: only an archive of raw values can be "
                    "replayed"
                )

    def pieces(self) -> Iterator[_Piece]:
        for fragment in self._dataset.get_fragments():
            yield _Piece(fragment, self._dataset.schema)


_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_string,
    pa.types.is_large_binary,
    pa.types.is_large_string,
)


def _dataset(path: Path) -> tuple[Any, list[str]]:
    """The files that count as a dataset, and which of them cannot even be opened."""
    if (path / "_delta_log").is_dir():
        return delta_table.dataset(str(path)), []
    log = path / "_spark_metadata"
    files = _finished(path, log) if log.is_dir() else _visible(path)
    if not files:
        raise InvalidConfig(f"{path} is neither a Delta table nor a directory of Parquet files")
    damaged = {each: said for each in files if (said := _broken(each)) is not None}
    files = [each for each in files if each not in damaged]
    if not files:
        raise ArchiveDamaged(list(damaged.values()))
    keys = [part.split("=")[0] for part in files[0].relative_to(path).parts[:-1] if "=" in part]
    by = ds.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
    names = [str(each) for each in files]
    found = ds.dataset(names, partitioning=by, partition_base_dir=str(path))
    return found, list(damaged.values())


def _broken(path: Path) -> str | None:
    try:
        pq.read_metadata(path)
    except (pa.ArrowException, OSError) as error:
        return _unreadable(path, error)
    return None


def _visible(path: Path) -> list[Path]:
    return [
        each
        for each in sorted(path.rglob("*.parquet"))
        if not any(part.startswith(("_", ".")) for part in each.relative_to(path).parts)
    ]


def _finished(root: Path, log: Path) -> list[Path]:
    """The files that Spark's own sink has finished: its last summary, and the batches since."""
    batches = {
        int(each.name.removesuffix(_COMPACT)): each
        for each in sorted(log.iterdir())
        if each.name.removesuffix(_COMPACT).isdecimal()
    }
    summaries = [number for number, each in batches.items() if each.name.endswith(_COMPACT)]
    since = max(summaries, default=0)
    paths: list[Path] = []
    for number in sorted(each for each in batches if each >= since):
        lines = batches[number].read_text().splitlines()[1:]
        paths += [_found(root, unquote(urlparse(json.loads(line)["path"]).path)) for line in lines]
    return paths


def _found(root: Path, recorded: str) -> Path:
    """Where a file is by now: Spark writes down whole paths, and directories are moved."""
    path = Path(recorded)
    if path.is_relative_to(root) and path.exists():
        return path
    # What lies below the directory are its partitions, as date=2026-03-01, and the file itself.
    parts = path.parts
    first = len(parts) - 1
    while first > 0 and "=" in parts[first - 1]:
        first -= 1
    for start in range(first, len(parts)):
        moved = root.joinpath(*parts[start:])
        if moved.exists():
            return moved
    raise InvalidConfig(f"{root} has no file {'/'.join(parts[first:])}, which Spark wrote there")


def _offsets_by_partition(
    batches: Iterator[pa.RecordBatch],
) -> Iterator[tuple[tuple[str, int], Ints]]:
    """Offsets by topic and partition."""
    for batch in batches:
        if not batch.num_rows:
            continue
        topics = pc.dictionary_encode(batch.column("topic").cast(pa.string()))
        partitions = batch.column("partition").cast(pa.int64()).to_numpy()
        offsets = batch.column("offset").cast(pa.int64()).to_numpy()
        codes = topics.indices.to_numpy()
        pairs = np.unique(np.stack([codes, partitions]), axis=1).T.tolist()
        for code, partition in pairs:
            chosen = (
                offsets if len(pairs) == 1 else offsets[(codes == code) & (partitions == partition)]
            )
            yield (topics.dictionary[code].as_py(), partition), chosen
