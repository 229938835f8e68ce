"""Partitions on disk, in Kafka's own formats: segments, indexes, recovery, retention.

    LogDirectory ── PartitionLog ── Segment ── data file, sparse offset and time index
         │               ├── EpochCache ........ where each leader epoch began
         │               └── ProducerStates .... what idempotent producers sent last
         └── checkpoints: recovery points, log start offsets, identity, clean-stop marker

Everything is synchronous and reaches the disk only through `core.files`; the caller picks the
thread. The data file is the truth: whatever else is missing or wrong is rebuilt from it.
Leaves who may append, what is committed and when to flush to `replication/`.
"""
