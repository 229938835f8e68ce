"""The client without I/O: calls become requests, responses become results; nothing here waits.

Sockets, loops, threads and clocks belong to the two faces, `client.aio` and `client.blocking`,
which drive the same core and so behave alike. Time comes in as an argument, randomness as an
interface.

    settings, consumer_settings, models, group_models, errors, arguments
                                      what users see
    operations                        calls as generators that yield what they need from outside
    cluster, lookups, coordinators    who leads, who coordinates, what is kept of the metadata
    admin_topics, admin_state, admin_groups, group_descriptions, group_lag, group_reset
                                      admin calls
    accumulator, partition_queue, batches, producer_identity, backoff
                                      records on their way
    planned_produce, produce_outcome
                                      requests of batches, and what is known of them afterwards
    fetcher, fetch_request, fetch_session, fetched
                                      which fetches to send; records out of them
    consumer_state, offset_operations
                                      what a group's consumer has read and committed
    membership, membership_classic, membership_consumer, memberships
                                      members of groups
    classic_requests, member_metadata, assignors
                                      what a classic member sends, and divides
"""
