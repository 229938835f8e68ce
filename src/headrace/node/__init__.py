"""The whole broker: builds every room from a config, starts them, stops them in reverse.

Offers `Node` and `real_node` (a node on the real disk, clock and threads). The real forms of
the seams live here; the simulated ones in `tests/simulation`.
"""
