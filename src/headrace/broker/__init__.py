"""The Kafka listeners: connections, dispatch, and a handler per API.

A handler authorizes, calls one service below and shapes the response; what is allowed, appended
and read is decided by `replication/`, `groups/` and `controller/`.

    Listener ── Connection ── FrameDispatcher ──┐
    in_process_client ── InProcessConnection ───┼── RequestProcessor ── handlers/ ── Services
    LocalControllerChannel ─────────────────────┘

    listener, connection, receive_buffer, sender
                  bytes in, bytes out, in order and bounded
    frame_dispatcher, produce_fast_path
                  frames to requests, quickly where one is repeated
    request       who asks and where the response goes: a value and a sink for each request
    processor, routes, services
                  a request to its handler, by the same rules for all; what handlers may call
    handlers      one module per API
    delayed_produce, delayed_fetch, request_timer
                  requests that wait for others
    in_process    the same handlers for a client in this process
    local_controller_channel
                  the same handlers for what the broker itself asks of the controller

    fetch_sessions, fetch_rate_limiter, leader_hints, topic_view
                                   what clients are shown
    group_requests, config_resources, response_errors
                                   what handlers of a kind share
    producer_ids                   ids for producers, from blocks that the controller reserves
    time_slice, record_work, disk_reads, long_requests
                                   long work, without holding others up
    metering                       how long requests take and how they end
"""
