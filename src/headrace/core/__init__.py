"""What every package shares: ids, error codes, and the interfaces to the outside world.

Does no I/O itself: the real forms of the interfaces live in `log/` (files) and `node/` (clock,
randomness, threads), the simulated ones in `tests/simulation`.

    ids               distinct types for offsets, epochs, ids
    errors            Kafka's error codes, and the one tree of exceptions
    runtime, files    interfaces to time, randomness and threads; to the disk
    metrics           counts and times, gathered when somebody asks
    shared_calls      calls for several owners, of whom one may fail

Every configuration key is declared here too, since clients ask a broker for all of them at once:

    config_keys         what a key is: type, default, limits, where its value comes from
    config_resources    what has configs: topics, brokers, groups
    keys                the broker's keys, by what they are about
    topic_configs, group_configs
                        the keys of topics and groups, and the values of one of them; each key
                        names the broker's key that it inherits from
    broker_configs      the values of one broker
    listeners, units    what some keys hold: addresses; durations and sizes
"""
