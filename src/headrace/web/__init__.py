"""The HTTP API: produce, read, consume, administer and watch with nothing but HTTP and JSON.

Offers `create_app` (in `web.app`) and `serve` (in `web.server`). Paths, bodies and errors are
those of REST Proxy v2 where it has them, and in the same style where it has not. Every route is
declared once, as an `Operation`: routing, decoding and the OpenAPI document come from that one
declaration, so they cannot drift apart.

    topics, cluster, groups    routes of one noun each
    produce, produce_stream, read, streams
                               routes of records: in, and out by offset or live
    consumers, consumer_types, instances, records_response
                               consumers that live here between requests
    pages                      health, metrics, the document; the files are in `static`

    server, settings, state, limits
                                   the listener, and what all requests share
    app, host_origin_filter, route_handler
                                   from a request to its route, and errors to responses
    operations, openapi            what a route is, and the document made of it
    asgi, call, bodies             one request: its parts, its client, what it sends
    media, record_formats, record_counts
                                   content types, and records between JSON and bytes
    errors, validation_messages    what a client is told when it may not or cannot
    metrics, http_metrics, group_metrics, process_metrics
                                   `/metrics` and what of it is made here

What may be done is decided elsewhere: everything here goes through a `Gateway`, so this package
obeys the rules of the Kafka listener, whether it runs in the broker or in a process of its own.
"""
