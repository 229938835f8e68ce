"""What `headrace top` looks at is told alike by Headrace and by Apache Kafka."""

from headrace.cli.top.cluster_sample import sample_cluster
from headrace.cli.top.rates import compare
from headrace.cli.top.scraper import Scraper
from headrace.client import Client, TopicPartition


def test_two_looks_tell_what_came_in_and_how_far_a_group_is(client: Client, topic: str) -> None:
    nowhere = Scraper(None, required=False)
    group = f"group-of-{topic}"
    client.admin.alter_offsets(group, {TopicPartition(topic, 0): 0})
    before = sample_cluster(client, nowhere)
    with client.producer() as producer:
        for _ in range(100):
            producer.send(topic, b"x" * 50)
    now = sample_cluster(client, nowhere)
    picture = compare(before, now)
    [row] = [each for each in picture.topics if each.topic == topic]
    assert (row.partitions, row.records) == (1, 100)
    assert round(row.messages_in * (now.at - before.at)) == 100
    assert row.size_bytes is not None
    assert row.size_bytes > 5_000
    assert row.bytes_in is not None
    assert row.bytes_in > 0
    [behind] = [each for each in picture.groups if each.group == group]
    assert behind.lag == 100
    assert picture.brokers == 1
