"""The Spark example of the README, run as it stands in the shared session."""

from __future__ import annotations

import pytest

from headrace.client import Client
from headrace.testing import Broker
from tests.docs.test_examples import python_blocks
from tests.support.spark_readers import send


@pytest.mark.usefixtures("spark")
def test_the_spark_example_of_the_readme_shows_what_a_topic_has(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (block,) = (block for block in python_blocks("README.md") if "headrace.spark" in block)
    with Broker() as broker, Client(broker.bootstrap_servers) as client:
        broker.create_topic("greetings")
        send(client, "greetings", [b"hello"])
        exec(block.replace("127.0.0.1:9092", broker.bootstrap_servers), {})
    assert "|     0|hello|" in capsys.readouterr().out
