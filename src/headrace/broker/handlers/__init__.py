"""One module per API, named after it, with one function of the same name that serves it.

A handler authorizes, calls one service and shapes the answer.
"""
