"""Groups of the KIP-848 protocol: the broker divides the partitions, members only heartbeat.

    heartbeat ──> who joined, left or changed ──> group epoch
                  group epoch moved           ──> target assignment (`assignors`)
                  member not at its target    ──> current assignment (`reconcile`)

`ConsumerGroup` (`group`) is pure state that records build; the decisions around it (`heartbeat`,
`leaving`, `classic_members`) read it and return records, and nothing else writes them. Members
of the classic protocol may live in such a group while it is migrated (`migration`). Appending
records, keeping time and answering requests is left to `groups.service`.
"""
