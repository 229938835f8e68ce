"""The Kafka door: connections, dispatch, and a handler per API.

Offers `Connection` (bytes to requests and answers back, in order, bounded), `Dispatcher`
(which handler serves which API and version) and the handlers. A handler authorizes, calls one
service below (`replication/`, `controller/`) and shapes the answer; it decides nothing itself.
"""
