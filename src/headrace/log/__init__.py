"""Partitions on disk, in Kafka's own formats: segments, indexes, recovery, retention.

Everything is synchronous and reaches the disk only through `core.files`; the caller picks the
thread. The data file is the truth: whatever else is missing or wrong is rebuilt from it.
Leaves who may append, what is committed and when to flush to `replication/`.

    partition_log, log_parts     one partition: append, read, and those who own the rest of it
    segments, segment, data_file, read_positions
                                 its stretches, and where readers stopped
    segment_indexes, sparse_index, timestamps
                                 offsets and times into positions
    log_writer, rolling          batches at the end of it, and when a segment is full
    log_flush, flush_job, log_checkpoint
                                 what of it is on disk, and what recovery need not look at
    log_opening, recovery, batch_scan, truncation, retention, replacement, compaction_source
                                 how it is opened, cut, shortened and compacted
    leader_epoch_cache, leader_epochs
                                 where each leader epoch began
    producer_state_manager, producer_state, producer_snapshot
                                 what producers sent last
    compaction                   the newest value of each key, by another process

    directory, directory_checks, meta_properties, partition_metadata, names, checkpoints
              all partitions of a node, and the files that belong to none or one of them
    real_files, descriptor_io, open_files, page_cache, path_locks
              the disk as the operating system gives it
    config    a topic's configuration as a log wants it
"""
