"""The client without I/O: calls become bytes, bytes become results, and nothing here waits.

Offers the connection state machine (`wire`), the metadata cache (`cluster`), calls written as
flows that yield what they need from the outside (`flows`, `admin_topics`, ...), the producer's
batching and sequencing (`sending`), and the reader's planning and decoding (`fetching`).
Sockets, loops, threads and clocks belong to the two faces, `aio` and `blocking`, which drive
the same core and so behave alike. Time comes in as an argument, randomness as a seam.
"""
