"""Kafka's record batches (magic 2): read the header, check it, patch it, take it apart, build it.

    header      the 61 bytes in front of every batch, as a named tuple
    checksum    CRC-32C
    validate    what a broker asks of a batch before it appends it
    patch       offsets, leader epoch and append time, written in place
    scan        whether all records of a batch are sound, quickly
    decode      the records inside a batch
    encode      batches from records; control batches; another codec
    varint      small numbers of either sign in few bytes
    budget      how much work may be done in one piece

The hot path uses only the first four and never looks at a record. No I/O: buffers in,
buffers out. Codecs live in `protocol.compression`.
"""
