"""REST Proxy's protocol as others test it: Karapace's suite against the HTTP API."""
