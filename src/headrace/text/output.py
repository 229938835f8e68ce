"""What a command may do with its connection."""

from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Output(Protocol):
    """The writing side of a connection, and news from its reading side."""

    async def send(self, data: bytes) -> None:
        """Write; waits while the client is slow to read."""
        ...

    async def unless_input(self, work: Coroutine[Any, Any, T]) -> T | None:
        """The result of `work`; None when the client has written something, or hung up."""
        ...
