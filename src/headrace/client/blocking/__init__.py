"""The blocking face of the client: plain sockets, no event loop, for scripts and Spark tasks.

`Client`, `Reader` and `Admin` do everything in the caller's thread and are meant for one thread
at a time; settings pickle, connections do not. `Producer` must send while its caller does other
things, so it alone has a thread, and may be shared by threads.
"""
