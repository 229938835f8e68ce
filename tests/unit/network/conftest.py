"""Connections in virtual time, on a simulated network."""

from tests.unit.client.aio.conftest import loop, run

__all__ = ["loop", "run"]
