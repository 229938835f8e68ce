"""The asyncio face of the client: client, producer, reader and admin over the core.

Reaches brokers only through `headrace.network` (by default the running loop's
`create_connection`), and time only through the loop, so it runs unchanged on a simulated one.
"""
