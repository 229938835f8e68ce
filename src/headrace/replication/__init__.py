"""Partitions as replicas see them: leader epoch, in-sync set, high watermark, and who waits.

Leaves bytes on disk to `log/`, decisions about who leads to `controller/`, and wire formats to
`broker/`.

    replica_manager                all partitions of this node, kept in step with the metadata image
    partition, leader, follower    one replica: its log, its role, and how far of it may be seen
    reads, waiters                 how somebody reads it, and who waits for it
    leadership                     who is told that this node begins or ceases to lead
    produce, settings              what a producer sent into an append, by the topic's rules
    flush_scheduler, flush_queue, flush_wait
                                   when each partition is flushed, and who waits for it
    high_watermark_checkpoint      how far each replica knew to be committed
"""
