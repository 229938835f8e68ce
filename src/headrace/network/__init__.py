"""Connections to brokers: what the client, and brokers among themselves, send requests over.

A `BrokerConnection` (`connection`) speaks frames and versions, over TLS where the settings say
so, keeps requests in order and notices late responses; a `ConnectionPool` (`connection_pool`)
holds one per node and channel and makes them when first needed. Nothing here knows what a
request means, retries it, or asks for metadata: where a node listens comes from whoever makes
the pool. A request that was not sent (`ConnectFailed`) is told from one of which nobody knows
whether it arrived (`ConnectionLost`), see `errors`.

`connection_state`, `framing`, `send_request`, `settings`, `address` and `errors` are the pure
part, without sockets, loop or clock; the blocking client drives it with sockets of its own.
`tls` makes a context from settings. Authentication by SASL has its place between the two.
"""
