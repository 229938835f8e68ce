"""Partitions as replicas see them: leader epoch, in-sync set, high watermark, and who waits.

Offers `Partition` (one replica of one partition, between handlers and log), `ReplicaManager`
(all partitions of this node, kept in step with the metadata image) and `FlushScheduler` (one
flush for everything appended meanwhile). Leaves bytes on disk to `log/`, decisions about who leads
to `controller/`, and wire formats to `broker/`.
"""
