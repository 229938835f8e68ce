"""Archives replayed into topics: every record once, in order, as it was."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.cli.main import main
from headrace.client import Client
from headrace.core.errors import InvalidConfig
from headrace.protocol.murmur2 import partition_for_key
from headrace.spark.archive import replay
from headrace.testing import Broker
from tests.integration.spark.conftest import TopicMaker
from tests.integration.spark.test_sinks import records
from tests.support.spark_tables import StreamOfBatches, rows


def test_doubles_and_files_that_overlap_are_put_in_order(
    client: Client, topic: str, tmp_path: Path
) -> None:
    stream = StreamOfBatches(tmp_path)
    stream.run(0, [rows([5, 6, 7])])
    stream.run(1, [rows([0, 2, 4, 6])])
    stream.run(2, [rows([1, 3])])
    assert replay(tmp_path, client.settings, to=topic, topic=None, by_key=False) == 8
    found = records(client, topic)
    assert [each.value for each in found] == [b"v%d" % number for number in range(8)]
    assert {each.timestamp for each in found} == {1772366400000}


def test_partitions_are_kept_or_chosen_by_key(
    client: Client, make_topic: TopicMaker, tmp_path: Path
) -> None:
    StreamOfBatches(tmp_path).run(0, [rows([0]), rows(range(4), partition=2)])
    kept, chosen = make_topic(partitions=3), make_topic(partitions=2)
    replay(tmp_path, client.settings, to=kept, topic=None, by_key=False)
    assert sorted(each.partition for each in records(client, kept)) == [0, 2, 2, 2, 2]
    with pytest.raises(InvalidConfig, match="has partitions 0 to 1, not 2"):
        replay(tmp_path, client.settings, to=chosen, topic=None, by_key=False)
    assert records(client, chosen) == [], "nothing is written before everything is known to fit"
    replay(
        tmp_path, client.settings, to=(again := make_topic(partitions=2)), topic=None, by_key=True
    )
    for each in records(client, again):
        assert each.partition == partition_for_key(each.key or b"", 2)


def test_one_of_several_topics_is_replayed(client: Client, topic: str, tmp_path: Path) -> None:
    stream = StreamOfBatches(tmp_path, partitionBy="topic,date")
    stream.run(0, [rows([0, 1], topic="a"), rows([7], topic="b")])
    with pytest.raises(
        InvalidConfig, match=r"has 2 topics: choose one of a, b by topic \(--topic\)"
    ):
        replay(tmp_path, client.settings, to=topic, topic=None, by_key=False)
    with pytest.raises(InvalidConfig, match="no topic 'c'"):
        replay(tmp_path, client.settings, to=topic, topic="c", by_key=False)
    assert replay(tmp_path, client.settings, to=topic, topic="b", by_key=False) == 1
    assert [each.value for each in records(client, topic)] == [b"v7"]


def test_typed_values_cannot_be_replayed(
    broker: Broker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = pa.Table.from_batches([rows([0])]).drop_columns(["value"])
    typed = plain.append_column("value", pa.array([{"user": "ann"}]))
    pq.write_table(typed, tmp_path / "a.parquet")
    with pytest.raises(SystemExit) as ended:
        main(["archive", "replay", str(tmp_path), "--to", topic, "-b", broker.bootstrap_servers])
    assert ended.value.code == 1
    assert "only an archive of raw values can be replayed" in capsys.readouterr().err
