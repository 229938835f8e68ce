"""The HTTP API: produce, read, consume, administer and watch with nothing but HTTP and JSON.

Offers `create_app` (in `web.app`) and `serve` (in `web.server`). Paths, bodies and errors are
those of REST Proxy v2 where it has them, and in the same style where it has not. Every route is
declared once, as an `Operation`: routing, decoding and the OpenAPI document come from that one
declaration, so they cannot drift apart. One module for each noun: topics, records, consumers,
groups, cluster, configs.

What may be done is decided elsewhere: everything here goes through a `Gateway`, so this package
obeys the rules of the Kafka listener, whether it runs in the broker or in a process of its own.
"""
