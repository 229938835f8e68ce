"""Cluster metadata: what the cluster knows about itself, and the only way to change it.

Offers `Image` (`controller.image`: topics, partitions, configs, brokers, features, an immutable
value that readers hold), the commands (`controller.commands`) and `Controller`
(`controller.driver`): `submit(command)` decides, appends to the metadata log, flushes, applies
and replies; `subscribe(listener)` tells what changed. Records and files are Kafka's own
metadata formats, so Kafka's dump tool reads them. One node is a quorum of one; agreeing with
others will take the place of the flush. What the changes mean for logs and clients is left to
`replication/` and `broker/`.
"""
