"""The group coordinator: who reads which partition, and how far each group has read.

Groups live in shards, one for each partition of `__consumer_offsets`: pure state machines whose
records lie in that partition in Kafka's formats. Loading, writing, replying and keeping time is
left to `coordinator/`, wire requests and authorization to `broker/`.

    group_coordinator             each request as an operation on the shard of its group
    shard, shard_state, result    the groups of one partition, and what a decision comes to
    classic                       groups whose members divide the partitions among themselves
    consumer, consumer_group_requests
                                  groups of KIP-848, and the way between the two protocols
    offsets, pending_offsets, offset_requests
                                  committed offsets, and how they come to an end
    records, stored_offsets       records to objects and bytes; quickly, when many are loaded
    queries                       lists and descriptions
    names, settings               what may come into a group, and the broker's keys
"""
