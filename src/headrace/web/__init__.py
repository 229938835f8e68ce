"""The HTTP door: REST with JSON, live streams, metrics and its own description."""
