"""The words of ASGI, and what the server and the router here add to a scope."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

SLASH: Final = "\udc2f"
"""Stands for a slash within a part of a path; no path that is sent can have it."""
CONNECTION: Final = "headrace.connection"
"""Where the server puts the connection of a request in its scope."""
