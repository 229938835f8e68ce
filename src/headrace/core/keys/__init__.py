"""Every key of the broker's configuration, declared by what it is about.

`broker_configs` joins these classes into one; each key is declared once, under Kafka's name with
underscores for dots. The classes have no slots, because several of them are joined. Keys of topics
and groups are in `topic_configs` and `group_configs`, and take their defaults from keys here.

    server, cluster, storage, records, groups, consumer_groups
                           what Kafka has keys for
    http, text, logging    what only Headrace has
"""
