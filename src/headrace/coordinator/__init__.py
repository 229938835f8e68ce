"""The runtime that coordinators run on: state kept in a topic, where its partition is led.

A coordinator (groups today) brings a pure shard (`shard.py`: `CoordinatorShard`) for each
partition of an internal topic. `CoordinatorRuntime` (`runtime.py`) runs operations on it: the
shard decides and changes its state, and what that comes to is a `Result` (`result.py`): records,
replies and timers. `PartitionWriter` (`partition_writer.py`) appends the records and lets the
replies go once they are committed; `ShardTable` (`shards.py`) keeps a shard for each partition
that this node leads, reads it from its log (`loading.py`) when the partition is elected and drops
it when it resigns; `Timers` (`timers.py`) is the one timer. `InternalTopic` (`internal_topic.py`)
creates the topic on first need and says which partition a key belongs to.

Which partitions are led here and how they are written is left to `replication/`; what a request
means, to the coordinator.
"""
