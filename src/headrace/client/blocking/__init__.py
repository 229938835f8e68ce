"""The blocking face of the client: plain sockets, no event loop, for scripts and Spark tasks.

`Client`, `Reader` and `Admin` do everything in the caller's thread and are meant for one thread
at a time; settings pickle, connections do not. `Producer` and `Consumer` must go on while their
caller does other things, so each has a thread with an event loop and the asyncio face in it.

    connection, cluster_requests    one broker's socket; requests to a cluster
    client, reader, admin           in the caller's thread
    producer, consumer              with a thread of their own
"""
