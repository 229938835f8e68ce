"""The Kafka listeners: connections, dispatch, and a handler per API.

A handler authorizes, calls one service below and shapes the response; what is allowed, appended
and read is decided by `replication/`, `groups/` and `controller/`.

    listener, connection, receive_buffer, sender
                  bytes in, bytes out, in order and bounded
    frame_dispatcher, produce_fast_path
                  frames to requests, quickly where one is repeated
    processor, routes, request, services
                  a request to its handler; what handlers may call
    handlers      one module per API
    delayed_produce, delayed_fetch, request_timer
                  requests that wait for others
    in_process    the same handlers for a client in this process

    fetch_sessions, fetch_rate_limiter, leader_hints, topic_view
                                   what clients are shown
    group_requests, config_resources, response_errors
                                   what handlers of a kind share
    auto_creation, producer_ids    changes of metadata that clients cause by the way
    time_slice, record_work, disk_reads, long_requests
                                   long work, without holding others up
    metering                       how long requests take and how they end
"""
