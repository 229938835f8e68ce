"""The pipelines of examples/, each from records in a topic to a result computed another way."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from headrace.client import Client, ProducerSettings
from headrace.spark.archive import verify
from headrace.spark.pipeline import Pipeline, load
from headrace.testing import Broker
from tests.integration.spark.test_sinks import records

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PATIENCE_SECONDS = 120
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sent:
    """A record as it was sent."""

    key: bytes | None
    value: bytes | None
    at: datetime = NOON
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Stage:
    """A broker with the topics that the examples name, and where they put their tables."""

    spark: SparkSession
    broker: Broker
    client: Client
    data: Path

    def create(self, *topics: str, partitions: int = 1) -> None:
        for each in topics:
            self.broker.create_topic(each, partitions=partitions)

    def send(self, topic: str, sent: Iterable[Sent]) -> None:
        send(self.client, topic, sent)

    def pipeline(self, name: str) -> Pipeline:
        variables = {"BOOTSTRAP_SERVERS": self.broker.bootstrap_servers, "DATA": str(self.data)}
        return load(EXAMPLES / f"{name}.yaml", variables)

    def run(self, name: str) -> None:
        """The pipeline over what is in its topics now."""
        pipeline = self.pipeline(name)
        if not (self.data / "checkpoints" / name).exists():
            assert pipeline.check(self.spark) == []
        run = pipeline.start(self.spark, once=True)
        try:
            assert run.wait(PATIENCE_SECONDS)
        finally:
            run.stop()

    def table(self, name: str) -> list[Json]:
        rows: list[Json] = DeltaTable(self.data / name).to_pyarrow_table().to_pylist()
        return rows

    def values(self, topic: str) -> list[Json]:
        return [json.loads(each.value or b"null") for each in records(self.client, topic)]


def send(client: Client, topic: str, sent: Iterable[Sent]) -> None:
    """Produce records, and wait until all are acknowledged."""
    with client.producer(ProducerSettings(linger_ms=0)) as producer:
        under_way = [
            producer.send(
                topic,
                each.value,
                key=each.key,
                timestamp_ms=round(each.at.timestamp() * 1000),
                headers=each.headers,
            )
            for each in sent
        ]
        producer.flush()
        for future in under_way:
            future.result()


@pytest.fixture
def stage(spark: SparkSession, tmp_path: Path) -> Iterator[Stage]:
    with (
        Broker(settings={"log.retention.ms": -1}) as broker,
        Client(broker.bootstrap_servers) as client,
    ):
        yield Stage(spark, broker, client, tmp_path)


def click(user: str | None, item: int, price: float, at: datetime) -> Sent:
    value = {"user": user, "item": item, "price": price, "at": at.isoformat()}
    return Sent(f"{user}".encode(), json.dumps(value).encode(), at)


def clicks(count: int, *, seed: int, begin: datetime = NOON, minutes: int = 5) -> list[Sent]:
    """Clicks in no order; prices in quarters, whose sums are exact."""
    draw = random.Random(seed)
    return [
        click(
            f"user-{draw.randrange(5)}",
            draw.randrange(1, 7),
            draw.randrange(40) / 4,
            begin + timedelta(milliseconds=draw.randrange(minutes * 60_000)),
        )
        for _ in range(count)
    ]


def parsed(sent: Iterable[Sent]) -> Iterator[Json]:
    for each in sent:
        value = json.loads(each.value or b"{}")
        yield {**value, "at": datetime.fromisoformat(value["at"])}


def time_of(text: str) -> datetime:
    return datetime.fromisoformat(text)


def in_order(rows: Sequence[Json], *names: str) -> list[Json]:
    return sorted(rows, key=lambda row: tuple(row[name] for name in names))


def test_archive_keeps_every_record_once_and_whole(stage: Stage) -> None:
    stage.create("orders", partitions=2)
    stage.create("payments")
    day = timedelta(days=1)
    headers = (("trace", b"\x00\xff"), ("trace", b"again"), ("empty", None))
    orders = [Sent(b"k%d" % n, b"\xff\x00order %d" % n, NOON + n * day / 4) for n in range(8)]
    payments = [Sent(None, b"", NOON, headers), Sent(b"gone", None, NOON + day)]
    stage.send("orders", orders[:5])
    stage.send("payments", payments)
    stage.run("archive")
    stage.send("orders", orders[5:])
    stage.run("archive")
    rows = stage.table("archive")
    found = Counter((row["topic"], row["key"], row["value"], row["timestamp"]) for row in rows)
    assert found == Counter(
        (topic, each.key, each.value, each.at)
        for topic, sent in (("orders", orders), ("payments", payments))
        for each in sent
    )
    assert all(row["date"] == row["timestamp"].date() for row in rows)
    assert {row["date"] for row in rows} == {date(2026, 3, 1), date(2026, 3, 2), date(2026, 3, 3)}
    kept = [row["headers"] for row in rows if row["topic"] == "payments" and row["key"] is None]
    assert kept == [[{"key": name, "value": value} for name, value in headers]]
    assert [(each.topic, each.rows, each.is_whole) for each in verify(stage.data / "archive")] == [
        *(("orders", len(part), True) for part in _by_partition(stage, "orders")),
        ("payments", 2, True),
    ]
    assert sum(each.lag or 0 for each in stage.client.admin.group_lag("archive")) == 0


def _by_partition(stage: Stage, topic: str) -> list[list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for each in records(stage.client, topic):
        found[each.partition].append(each.offset)
    return [found[number] for number in sorted(found)]


def test_json_to_table_has_typed_rows_and_loses_no_bad_record(stage: Stage) -> None:
    stage.create("clicks", partitions=2)
    stage.create("clicks.bad")
    good = clicks(60, seed=1, minutes=3000)
    bad = [
        Sent(b"user-1", b"no json"),
        Sent(b"user-2", b'{"user": "a", "item": "seven", "at": "2026-03-01T12:00:00Z"}'),
        Sent(b"user-3", b'{"item": 7, "at": "2026-03-01T12:00:00Z"}'),
    ]
    refund = click("user-4", 1, -2.5, NOON)
    stage.send("clicks", [*good[:20], bad[0], *good[20:40], *bad[1:], refund])
    stage.run("json-to-table")
    stage.send("clicks", good[40:])
    stage.run("json-to-table")
    rows = stage.table("clicks")
    names = ("user", "item", "price", "at")
    assert in_order([{name: row[name] for name in names} for row in rows], *names) == in_order(
        list(parsed(good)), *names
    )
    assert all(row["date"] == row["at"].date() for row in rows)
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(good)
    letters = records(stage.client, "clicks.bad")
    assert {(each.key, each.value) for each in letters} == {(each.key, each.value) for each in bad}


def test_window_counts_end_as_the_counts_of_every_minute(stage: Stage) -> None:
    stage.create("clicks", partitions=2)
    stage.create("clicks.by_item", "clicks.bad")
    first, second = clicks(150, seed=2), clicks(50, seed=3, begin=NOON + 3 * MINUTE)
    stage.send("clicks", first)
    stage.run("window-counts")
    written = len(records(stage.client, "clicks.by_item"))
    stage.send("clicks", second)
    stage.run("window-counts")
    newest = {each.key: each.value for each in records(stage.client, "clicks.by_item")}
    found = {}
    for key, value in newest.items():
        row = json.loads(value or b"")
        assert json.loads(key or b"") == {"minute": row["minute"], "item": row["item"]}
        found[time_of(row["minute"]), row["item"]] = (row["clicks"], row["sales"])
    assert found == counts([*first, *second], timedelta(minutes=1))
    # Only what had changed was written again.
    changed = counts(second, timedelta(minutes=1))
    assert len(records(stage.client, "clicks.by_item")) == written + len(changed)


def counts(sent: Iterable[Sent], size: timedelta) -> dict[tuple[datetime, int], tuple[int, float]]:
    """Clicks and sales by window and item."""
    found: dict[tuple[datetime, int], tuple[int, float]] = {}
    for each in parsed(sent):
        begin = each["at"] - (each["at"] - datetime(1970, 1, 1, tzinfo=UTC)) % size
        number, sales = found.get((begin, each["item"]), (0, 0.0))
        found[begin, each["item"]] = number + 1, sales + each["price"]
    return found


def order(number: int, at: datetime) -> Sent:
    value = {
        "order_id": f"order-{number}",
        "customer": f"c{number % 3}",
        "total": number / 4,
        "at": at.isoformat(),
    }
    return Sent(None, json.dumps(value).encode(), at)


def test_dedup_lets_each_order_through_once(stage: Stage) -> None:
    stage.create("orders", partitions=3)
    stage.create("orders.unique", "orders.bad")
    draw = random.Random(4)
    orders = [order(number, NOON + number * timedelta(seconds=5)) for number in range(60)]
    first = [each for each in orders[:40] for _ in range(draw.randrange(1, 4))]
    draw.shuffle(first)
    stage.send("orders", first)
    stage.run("dedup")
    again = [*orders[20:], *draw.choices(orders, k=30)]
    draw.shuffle(again)
    stage.send("orders", again)
    stage.run("dedup")
    found = records(stage.client, "orders.unique")
    assert Counter(each.key for each in found) == Counter(b"order-%d" % n for n in range(60))
    got = {row["order_id"]: (row["customer"], row["total"], time_of(row["at"]))
           for row in map(json.loads, (each.value or b"" for each in found))}  # fmt: skip
    assert got == {
        each["order_id"]: (each["customer"], each["total"], each["at"]) for each in parsed(orders)
    }


def visits(sent: Iterable[Sent], gap: timedelta) -> Counter[tuple[Any, ...]]:
    """User, begin, end, clicks and money of every visit."""
    by_user: dict[str, list[Json]] = defaultdict(list)
    for each in parsed(sent):
        by_user[each["user"]].append(each)
    found: Counter[tuple[Any, ...]] = Counter()
    for user, its_clicks in by_user.items():
        visit: list[Json] = []
        for each in in_order(its_clicks, "at"):
            if visit and each["at"] - visit[-1]["at"] > gap:
                found[_told(user, visit)] += 1
                visit = []
            visit.append(each)
        found[_told(user, visit)] += 1
    return found


def _told(user: str, visit: Sequence[Json]) -> tuple[Any, ...]:
    spent = sum(each["price"] for each in visit)
    return user, visit[0]["at"], visit[-1]["at"], len(visit), spent


def test_sessions_tell_every_visit_once_it_is_over(stage: Stage) -> None:
    stage.create("clicks", partitions=2)
    stage.create("visits", "clicks.bad")
    # Each run goes back less than the watermark: no click is late.
    morning = clicks(40, seed=5, minutes=240)
    later = clicks(40, seed=6, begin=NOON + timedelta(minutes=237), minutes=240)
    stage.send("clicks", morning)
    stage.run("sessions")
    early = len(stage.values("visits"))
    # The last one only moves the time on: its own visit does not end.
    stage.send("clicks", [*later, click("nobody", 1, 0, NOON + timedelta(days=1))])
    stage.run("sessions")
    found = Counter(
        (
            *(row["user"], time_of(row["began"]), time_of(row["ended"])),
            *(row["clicks"], row["spent"]),
        )
        for row in stage.values("visits")
    )
    assert found == visits([*morning, *later], timedelta(minutes=30))
    assert 0 < early < found.total()  # told as they end, not all in the end


def change(op: str, before: Json | None, after: Json | None, number: int) -> Sent:
    known, source = after or before or {}, {"lsn": 1_000 + 8 * number}
    envelope = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": source}
    key = json.dumps({"id": known["id"]}).encode()
    return Sent(key, json.dumps(envelope).encode())


def changes(count: int, seed: int) -> tuple[list[Sent], dict[int, Json]]:
    """A history of a small table, and how the table is in the end."""
    draw = random.Random(seed)
    table: dict[int, Json] = {}
    history: list[Sent] = []
    for number in range(count):
        key = draw.randrange(12)
        row = {"id": key, "name": f"name {number}", "email": draw.choice([None, f"{number}@x"])}
        if key not in table:
            history.append(change(draw.choice("cr"), None, row, number))
            table[key] = row
        elif draw.random() < 0.35:
            history.append(change("d", table.pop(key), None, number))
            history.append(Sent(history[-1].key, None))  # the tombstone that compaction wants
        else:
            history.append(change("u", table[key], row, number))
            table[key] = row
    return history, table


def test_cdc_upsert_ends_as_the_database_is(stage: Stage) -> None:
    stage.create("shop.public.customers", partitions=3)
    stage.create("shop.public.customers.bad")
    history, table = changes(200, seed=7)
    stage.send("shop.public.customers", history[:120])
    stage.run("cdc-upsert")
    # Keys come to other partitions, where offsets are small.
    stage.client.admin.create_partitions({"shop.public.customers": 5})
    stage.send("shop.public.customers", history[120:])
    stage.run("cdc-upsert")
    names = ("id", "name", "email")
    found = [{name: row[name] for name in names} for row in stage.table("customers")]
    assert in_order(found, "id") == in_order(list(table.values()), "id")
    assert 0 < len(table) < 12
    assert records(stage.client, "shop.public.customers.bad") == []


def test_backfill_counts_the_range_it_is_given_and_only_once(stage: Stage) -> None:
    stage.create("clicks", partitions=2)
    stage.create("clicks.bad")
    hour = timedelta(hours=1)
    sent = sorted(clicks(200, seed=8, minutes=600), key=lambda each: each.at)
    stage.send("clicks", sent)
    pipeline = stage.pipeline("backfill")
    for _ in range(2):
        pipeline.backfill(stage.spark, since=NOON + 2 * hour, until=NOON + 5 * hour)
    wanted = [each for each in sent if NOON + 2 * hour <= each.at < NOON + 5 * hour]
    rows = stage.table("sales-by-hour")
    found = {(row["hour"], row["item"]): (row["clicks"], row["sales"]) for row in rows}
    assert len(rows) == len(found)
    assert found == counts(wanted, hour)
    pipeline.backfill(stage.spark, since=NOON + 5 * hour, until=NOON + 7 * hour)
    wanted = [each for each in sent if NOON + 2 * hour <= each.at < NOON + 7 * hour]
    found = {
        (row["hour"], row["item"]): (row["clicks"], row["sales"])
        for row in stage.table("sales-by-hour")
    }
    assert found == counts(wanted, hour)


def test_enrich_adds_what_the_table_knows_of_each_item(stage: Stage) -> None:
    stage.create("clicks", partitions=2)
    stage.create("clicks.enriched", "clicks.bad")
    sent = clicks(80, seed=9)
    stage.send("clicks", sent[:50])
    stage.run("enrich")
    stage.send("clicks", sent[50:])
    stage.run("enrich")
    known = {
        1: ("espresso", "coffee"),
        2: ("macchiato", "coffee"),
        3: ("green tea", "tea"),
        4: ("cake, chocolate", "food"),
    }
    wanted = Counter(
        (each["user"], each["item"], *known.get(each["item"], (None, None)), each["price"],
         each["at"])
        for each in parsed(sent)
    )  # fmt: skip
    found: Counter[tuple[Any, ...]] = Counter()
    for record in records(stage.client, "clicks.enriched"):
        row = json.loads(record.value or b"")
        assert record.key == row["user"].encode()
        names = ("user", "item", "name", "category", "price")
        found[*(row.get(name) for name in names), time_of(row["at"])] += 1
    assert found == wanted


def test_every_example_is_in_the_list_and_the_list_has_no_other() -> None:
    files = {each.name for each in EXAMPLES.glob("*.yaml")}
    listed = re.findall(r"^\| \[`([a-z-]+\.yaml)`\]\(\1\) \|", (EXAMPLES / "README.md").read_text(), re.MULTILINE)  # fmt: skip  # noqa: E501
    assert sorted(files) == sorted(listed)


def test_every_example_can_be_printed_as_a_program() -> None:
    for file in EXAMPLES.glob("*.yaml"):
        program = load(file, {}).plan()
        compile(program, file.name, "exec")
        assert "readStream" in program
