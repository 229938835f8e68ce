"""Groups of the KIP-848 protocol: the broker divides the partitions, members only heartbeat.

    heartbeat ──> who joined, left or changed ──> group epoch
                  group epoch moved           ──> target assignment (`assignors`)
                  member not at its target    ──> current assignment (`reconcile`)

Members of the classic protocol may live in such a group while it is migrated. Appending records,
keeping time and answering requests is left to `coordinator/`.

    group, members, records         the state, which records build
    heartbeat, request_checks       what members ask for
    leaving, timers                 members that go, or must have shown themselves
    draft                           a decision in the making: its records, and the group with them
    target, reconcile, assignors    who should own what, and each member's next step there
    patterns, topics                subscriptions by regular expression; the topics there are
    migration, classic_members      from and to the classic protocol
    offset_rules                    who may commit and fetch
    describe, settings              the group as it is shown; the rules it lives by
"""
