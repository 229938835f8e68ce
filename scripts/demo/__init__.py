"""`make demo`: a stream survives the violent death of its broker, and of one of its readers.

Starts a broker, publishes with confluent-kafka, kills the broker with SIGKILL in the middle,
starts it again on the same data and reads everything back. Then two consumers share the topic as
a group until one of them is killed too. A table shows that nothing that was acknowledged is
missing and that the other consumer has taken over. Exits 0 only if that is true.
"""
