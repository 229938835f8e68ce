"""`make demo`: a stream survives the violent death of its broker.

Starts a broker, publishes with confluent-kafka, kills the broker with SIGKILL in the middle,
starts it again on the same data, reads everything back, and shows in a table that nothing that
was acknowledged is missing. Exits 0 only if that is true.
"""
