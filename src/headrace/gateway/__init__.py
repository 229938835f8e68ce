"""What the plain doors ask for, by topic or group: one interface over `headrace.client`.

Its local form hands requests to the handlers of this process, its remote form to a cluster.
"""
