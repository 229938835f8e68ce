"""The group coordinator: who reads which partition, and how far each group has read.

Groups live in shards, one for each partition of the offsets topic. `shard.GroupShard` is pure:
it decides, changes its groups and offsets, and hands over records in Kafka's formats. Which of its
parts does what:

    classic                    groups of the classic protocol
    consumer                   groups of KIP-848, and members on their way between the two
    consumer_group_requests    requests that concern consumer groups, brought into the shard
    offset_requests            commits, fetches and deletions of offsets; how offsets expire
    offsets, pending_offsets   offsets committed, and those of transactions that have not ended
    queries                    lists and descriptions of groups
    shard_state, result        what the above see of their shard, and what they decide
    records, stored_offsets    records between objects and bytes

`group_coordinator.GroupCoordinator` maps requests to operations on a shard (`names`: which ids and
names may come in; `settings`: limits from the broker's configuration). Nothing here does I/O: the
runtime in `coordinator/` loads the shards that are led here, appends what they decide, lets the
responses go once that is committed, and keeps the time. Wire requests and authorization are left
to `broker/`.
"""
