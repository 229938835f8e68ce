"""Randomness split by purpose: a stream of its own for the network, each disk, node and client.

One more number drawn by the product, or by one client, must not give every seed another history:
a seed that was kept because it once failed would silently stop to mean anything.
"""

from random import Random


class Streams:
    """The streams of one seed; the same purpose gets the same stream."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, Random] = {}

    def __call__(self, purpose: str) -> Random:
        stream = self._streams.get(purpose)
        if stream is None:
            stream = self._streams[purpose] = Random(f"{self.seed}/{purpose}")
        return stream
