"""The blocking face of the client: plain sockets, no event loop, for scripts and Spark tasks.

`Client`, `Reader` and `Admin` do everything in the caller's thread and are meant for one thread
at a time; settings pickle, connections do not. `Producer` must send while its caller does other
things, so it alone has a thread, and may be shared by threads.
"""

from headrace.client.blocking.admin import Admin
from headrace.client.blocking.client import Client
from headrace.client.blocking.producer import Producer
from headrace.client.blocking.reader import Reader

__all__ = ["Admin", "Client", "Producer", "Reader"]
