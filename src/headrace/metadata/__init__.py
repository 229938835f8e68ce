"""What the cluster knows about itself, on every node: an image, and the log it is replayed from.

Offers `Image` (`metadata.image`: topics, partitions, configs, brokers and features as an immutable
value that readers hold; `metadata.names` has the rules for names), `MetadataCache`
(`metadata.cache`: the image of the moment, for requests), `Delta` (`metadata.delta`: what
differs between two images, found from records or by comparing), `MetadataPublishers`
(`metadata.publisher`: who hears of a new image, in one order), and how records become an image:
`ImageBuilder` (`metadata.builder`) and `MetadataLoader` (`metadata.loader`: what is committed, on
any node). What is committed a `MetadataQuorum` says (`metadata.quorum`; of one node in
`metadata.sole_voter_quorum`), over a `MetadataLog` (`metadata.metadata_log`, with
`metadata.records`, `metadata.snapshots`, `metadata.snapshot_generator`, which says when one is due,
and `metadata.quorum_state`). `ControllerChannel` (`metadata.controller_channel`) is how a broker
asks the controller for something on its own account, as for topics that nobody creates by hand
(`metadata.auto_topic_creation`). Records and files are Kafka's own metadata formats, so Kafka's
dump tool reads them. What is changed is decided in `controller/`; what a change means for logs and
clients is left to `replication/` and `broker/`.
"""
