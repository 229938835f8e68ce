"""What every package shares: ids, error codes, and the interfaces to the outside world.

Offers the NewTypes for offsets and epochs, Kafka's error codes with one exception tree, and
the small interfaces through which everything reaches time, randomness, threads and disk.
Does no I/O itself: the real forms live in `log/` (files) and `node/` (clock, executor),
the simulated forms in `tests/simulation`.
"""
