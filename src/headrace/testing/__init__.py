"""A broker inside the test process, and the pytest plugin that hands it out.

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

Offers `Broker` and, through the plugin, the fixtures `headrace_broker` and `headrace_topic`.
It is the real broker on a real port with its data in a temporary directory: what a test proves
here holds for `headrace serve`. Tests of Headrace itself that need a process to kill use
`tests/support` instead.

    broker            `Broker`: started and stopped in milliseconds
    plugin            the fixtures
    loop_thread       the event loop that the broker has to itself
    unsynced_files    the real disk without waiting for it
"""

from headrace.testing.broker import Broker

__all__ = ["Broker"]
