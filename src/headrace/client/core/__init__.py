"""The client without I/O: calls become requests, responses become results; nothing here waits.

Offers the metadata cache (`cluster`), calls written as operations that yield what they need from
the outside (`operations`, `admin_topics`, ...), the producer's batching and sequencing
(`accumulator`), and the reader's planning and decoding (`fetcher`). Sockets, loops, threads and
clocks belong to the two faces, `aio` and `blocking`, which drive the same core and so behave
alike. Time comes in as an argument, randomness as an interface.
"""
