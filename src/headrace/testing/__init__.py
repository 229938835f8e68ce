"""A broker inside the test process, and the pytest plugin that hands it out.

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

Offers `Broker` and, through the plugin, the fixtures `headrace_broker` and `headrace_topic`.
It is the real broker on a real port with its data in a temporary directory: what a test proves
here holds for `headrace serve`. Tests of Headrace itself that need a process to kill use
`tests/support` instead.
"""

from headrace.testing.broker import Broker

__all__ = ["Broker"]
