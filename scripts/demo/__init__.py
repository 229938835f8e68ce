"""`make demo`: a stream survives violent deaths of its broker, its readers and its pipeline.

Starts a broker, publishes with confluent-kafka, kills the broker with SIGKILL in the middle,
starts it again on the same data and reads everything back. Then two consumers share the topic as
a group until one of them is killed too. At last a generator publishes clicks and a Spark pipeline
(`clicks.yaml`) keeps them in a Delta table and counts them per window and page; it is killed
twice, once between the table's commit and the checkpoint's. Tables show that nothing that was
acknowledged is missing and that every window equals the generator's own count, and a page shows
throughput and lag over time. Exits 0 only if all of that is true.
"""
