"""Kafka's listeners: connections, requests, and a handler per API.

    Listener ── Connection ── FrameDispatcher ──┐
                                                ├── RequestProcessor ── handlers/ ── Services
    in_process_client ── InProcessConnection ───┘

Offers `RequestProcessor` (in `processor`: the rules that every request obeys, whatever it comes
by), `Listener` and `Connection` (bytes to frames and responses back, in order, bounded),
`in_process_client` (a client of `headrace.client` without a socket) and `Services` (what handlers
may call). A request is a `RequestContext` (in `request`: who asks, and where the response goes);
`routes` says which APIs are served. A handler authorizes, calls the services below
(`replication/`, `groups/`, `controller/`) and shapes the response; `produce_fast_path` is a short
cut for produce requests that repeat. Fetch sessions, producer ids and topics that are created
because somebody mentions them live here too.
"""
