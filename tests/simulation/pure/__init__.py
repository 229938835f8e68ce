"""Pure machines alone: no event loop, no codec, no files; some milliseconds a seed.

    kernel ....... time, a network that loses, doubles and reorders messages, logs that forget
                   what was not flushed, nodes that die and come back, a clock for each
    shards ....... a coordinator's shard on a node: loads, writes, replies when committed
    members ...... members of groups, by both protocols, over such a network
    group_run .... the first tenant: shards of groups move from node to node; what is promised

A machine is put on a node by a `Program`: it is called with messages, with the time it has asked
for and with what is flushed, and does everything else through `NodeContext`. So a consensus node
(`step(event, now_ms)`, then what `ready()` says) or the roles of a partition are programs too.

Faults are `tests.simulation.faults`: a plan that fails here can be given to whole nodes.

    python -m tests.simulation.pure 0:1000              seeds, and how fast they went
    python -m tests.simulation.pure 17 --plan FILE      replay a plan as it was printed
    python -m tests.simulation.pure 17 --shrink         delete faults while it still fails
"""
