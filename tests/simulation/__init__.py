"""A whole broker and its clients in one thread, in virtual time, on a disk that loses power.

    loop, network, lockstep, processes ... time, connections, workers and deaths, all simulated
    inodes, disk ......................... files of which a crash keeps what it likes
    log_script, compaction_script,
    node_script .......................... scripted lives; a crash after every step on the disk
    sync_sites ........................... every sync in the source, to be taken away in turn
    machine, clients, world .............. storms drawn from a seed; the history is judged by
                                           `tests.support.history_checks`

To replay a storm: `World(seed).run()`; the same seed gives the same history byte for byte.
`HEADRACE_SEEDS=1000:2000 pytest tests/simulation/test_world.py` runs a thousand others.
"""
