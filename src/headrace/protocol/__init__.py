"""Kafka's wire language, without any I/O: bytes in, objects out, and back.

One class per message for all its versions: declared by hand, compiled to straight-line code when
a version is first used. Leaves sockets, files and every decision to others.

    messages                requests and responses, one module per API
    schemas                 what Kafka stores in its internal topics
    records                 record batches
    frames, api_keys        a message in its frame; which APIs there are, in which versions
    message, fields         what a declaration is written with
    constructor, encoder, decoder, wire
                            what it is compiled to
    compression, murmur2    the four codecs; the hash of the partitioner
"""
