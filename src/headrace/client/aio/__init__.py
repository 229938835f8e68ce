"""The asyncio face of the client: links, client, producer, reader and admin over the core.

Reaches the network only through the `connect` seam (by default the running loop's
`create_connection`), and time only through the loop, so it runs unchanged on a simulated one.
"""
