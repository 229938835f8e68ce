"""What tests and benchmarks share: foreign tools, broker processes, readings of a process.

`tools` finds or installs programs we did not write; `kafka_tools` runs Kafka's own tools and
small Java programs; `apache_kafka` and `headrace_process` start one broker each behind the same
interface, so a test can be pointed at either; `processes` reads what a process costs.
"""
