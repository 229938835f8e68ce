"""Whole brokers and their clients in one thread, in virtual time, on disks that lose power.

    loop, network, lockstep, processes ... time, connections, workers and deaths, all simulated
    inodes, disk ......................... files of which a crash keeps what it likes
    log_script, compaction_script,
    node_script .......................... scripted lives; a crash after every step on the disk
    sync_sites ........................... every sync in the source, to be taken away in turn
    streams, faults ...................... randomness by purpose; what goes wrong, as data
    machine, clients, world .............. runs drawn from a seed; the history is judged by
                                           `tests.support.history_checks`
    group_members ........................ a group that reads along; `tests.support.group_checks`
    pure ................................. the machines alone, in milliseconds a seed

The same seed and plan give the same history byte for byte, whatever else draws numbers:

    python -m tests.simulation run 17                  replay a seed; 0:1000 runs a thousand
    python -m tests.simulation run 17 --plan FILE      replay a plan as it was printed
    python -m tests.simulation run 17 --nodes 3        three nodes, each with its clients
    python -m tests.simulation run 17 --groups consumer    with a group among the clients
    python -m tests.simulation shrink 17               delete faults while it still fails
    python -m tests.simulation.pure 0:10000            pure machines; 17 --shrink as above
    HEADRACE_SEEDS=1000:2000 pytest tests/simulation/test_world.py
"""
