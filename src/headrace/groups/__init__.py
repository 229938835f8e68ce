"""The group coordinator: who reads which partition, and how far each group has read.

Groups live in shards, one for each partition of `__consumer_offsets`. A shard is a pure machine
(`shard.py`: classic groups in `classic/`, KIP-848 groups in `consumer/`, committed offsets in
`offsets.py`) whose records lie in that partition in Kafka's formats. Only `service.py` and
`journal.py` do I/O: they append what a step decided, let its answers go once the records are
committed, keep the one timer, and replay the log after a start. Which partitions exist and how
they are written is left to `replication/`, wire requests and authorization to `broker/`.
"""
