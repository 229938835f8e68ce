"""Kafka's wire language, without any I/O: bytes in, objects out, and back.

Offers one class per message for all its versions (`messages/`, one module per API), the
schemas of what Kafka stores in its internal topics (`schemas/`), request and response frames,
record batches (`records/`), compression and the partitioner's hash. Declarations are compiled
to straight-line code on first use. Leaves sockets, files and every decision to others.
"""
