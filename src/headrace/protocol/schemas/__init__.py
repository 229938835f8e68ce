"""What Kafka stores in its own topics: metadata, group offsets, transactions, assignments.

A module declares the keys and values of one topic, or of one kind of record in it.

    metadata_frame, metadata_cluster, metadata_nodes, metadata_security, metadata_topics, quorum
                         the metadata log, its snapshots and its vote file
    coordinator_frame    the frame around what groups and transactions store
    group_offsets, consumer_groups, consumer_protocol
                         groups, their offsets and assignments
    transaction_log      transactions, and the markers that end them
"""
