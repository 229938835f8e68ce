"""Headrace and Apache Kafka side by side on one machine, in one run, as ratios.

`python -m bench` starts both with their data on the same disk, warms them, drives both with the
same real client in processes of its own, turns the order round from pair to pair, and writes
`docs/benchmarks.md`. `sides` starts the brokers, `driver` is the client process, the scenario
modules (`throughput`, `latency`, `beside`, …) fill a `Readings`, `rows` holds the bars and
judges, `report` writes.
"""
