"""Partitions as replicas see them: leader or follower, in-sync set, high watermark, and who waits.

Offers `Partition` (one replica of one partition, between handlers and log, with a `Leader` or a
`Follower` that decides how far it commits), `ReplicaManager` (all partitions of this node, kept
in step with the metadata image, and who is told when the lead of one begins or ends) and
`FlushScheduler` (one flush for everything appended meanwhile). Leaves bytes on disk to `log/`,
decisions about who leads to `controller/`, and wire formats to `broker/`.
"""
