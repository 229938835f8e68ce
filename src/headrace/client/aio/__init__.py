"""The asyncio face of the client: client, producer, reader, consumer and admin over the core.

Reaches brokers only through `headrace.network`, and time only through the loop, so it runs
unchanged on a simulated one.

    cluster_requests        requests to the brokers of a cluster: what all the others stand on
    client                  `AsyncClient`, which makes the rest
    producer, sender        records in; the requests that run behind
    reader, fetch_sender    partitions by assignment; their fetches
    consumer, consumer_engine, membership
                            a member of a group, its fetches and its heartbeats
    admin                   everything else
"""
