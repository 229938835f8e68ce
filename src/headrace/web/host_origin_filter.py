"""Whom the HTTP API answers: this machine's own programs and pages, not pages from elsewhere.

A page of any website can make a browser send requests to this machine. Three headers, which a
page cannot forge, give it away: `Host` (a name of the website that was made to point here),
`Origin` and `Sec-Fetch-Site`.
"""

from collections.abc import MutableMapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from headrace.core.runtime import Clock
from headrace.web.asgi import Receive, Scope, Send
from headrace.web.errors import HttpError
from headrace.web.route_handler import send_bytes, send_error
from headrace.web.settings import WebSettings

_HOSTS_HINT = "use localhost or the broker's address, or name the host in http.allowed.hosts"
_ORIGINS_HINT = "only this listener's own pages may call it; others by http.allowed.origins"

# What pages of named origins may do and see, beyond what browsers let every page do.
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"Accept, Content-Type, Idempotency-Key, Last-Event-ID",
    ),
    (b"access-control-allow-private-network", b"true"),
    (b"access-control-max-age", b"600"),
)
_EXPOSED: Final = (
    b"access-control-expose-headers",
    b"Headrace-Next-Offset, Retry-After, Allow",
)


class HostOriginFilter:
    """Wraps an application: refuses foreign hosts and origins before anything is done."""

    def __init__(self, app: Any, settings: WebSettings) -> None:
        self._app = app
        self._settings = settings
        self._hosts = {name.lower() for name in settings.allowed_hosts}
        self._origins = {origin.lower() for origin in settings.allowed_origins}
        # The same few headers come with every request.
        self._is_own_host = lru_cache(256)(self._check_host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        if self._origins:
            send = self._with_origin(scope, send)
        if refusal is not None:
            await send_error(send, refusal)
            return
        if self._origins and scope["method"] == "OPTIONS" and _is_preflight(scope):
            await send_bytes(send, 204, b"", list(_PREFLIGHT))
            return
        await self._app(scope, receive, send)

    def _with_origin(self, scope: Scope, send: Send) -> Send:
        """Tell browsers which pages may see the answer: those of origins that are named."""
        origin = _header(scope, b"origin")
        more = [(b"vary", b"Origin")]
        if origin is not None and self._is_named(origin.decode("latin-1").lower()):
            more += [(b"access-control-allow-origin", origin), _EXPOSED]

        async def told(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *more]
            await send(message)

        return told

    def _refusal(self, scope: Scope) -> HttpError | None:
        hosts: list[bytes] = []
        origin = site = mode = None
        for name, value in scope["headers"]:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origin = value
            elif name == b"sec-fetch-site":
                site = value
            elif name == b"sec-fetch-mode":
                mode = value
        if len(hosts) != 1:
            return HttpError(400, "exactly one Host header is needed")
        server = scope.get("server") or ("", None)
        if not self._is_own_host(hosts[0], server[0]):
            shown = hosts[0].decode("latin-1")[:200]
            return HttpError(40302, f"the host {shown!r} is not served here", hint=_HOSTS_HINT)
        if origin is not None and not self._is_own_origin(origin, hosts[0], scope["scheme"]):
            shown = origin.decode("latin-1")[:200]
            return HttpError(40303, f"the origin {shown!r} is not served", hint=_ORIGINS_HINT)
        if origin is None and site in (b"cross-site", b"same-site") and mode != b"navigate":
            return HttpError(40303, "requests by foreign pages are not served", hint=_ORIGINS_HINT)
        return None

    def _check_host(self, header: bytes, server: str) -> bool:
        text = header.decode("latin-1").strip().lower()
        host = text[: text.rfind("]") + 1] if text.startswith("[") else text.partition(":")[0]
        host = host.strip("[]").rstrip(".")
        if "*" in self._hosts or host in self._hosts or host == self._settings.host.lower():
            return True
        if host == "localhost" or host.endswith(".localhost"):
            return True
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or host == server

    def _is_own_origin(self, origin: bytes, host: bytes, scheme: str) -> bool:
        told = origin.decode("latin-1").lower()
        own = f"{scheme}://{host.decode('latin-1').lower()}"
        return told == own or self._is_named(told)

    def _is_named(self, origin: str) -> bool:
        return origin in self._origins or "*" in self._origins


def _header(scope: Scope, wanted: bytes) -> bytes | None:
    return next((value for name, value in scope["headers"] if name == wanted), None)


def _is_preflight(scope: Scope) -> bool:
    """Whether a browser asks if a page may send a request of its own making."""
    named = {name for name, _ in scope["headers"]}
    return {b"origin", b"access-control-request-method"} <= named


class DateHeader:
    """The `Date` of answers, written anew only when a second has passed."""

    __slots__ = ("_clock", "_headers", "_second")

    def __init__(self, headers: list[tuple[bytes, bytes]], clock: Clock) -> None:
        self._headers = headers
        self._clock = clock
        self._second = 0

    def refresh(self) -> None:
        now = self._clock.now_ms() // 1000
        if now != self._second:
            from email.utils import formatdate

            self._second = now
            self._headers[:] = [(b"date", formatdate(now, usegmt=True).encode())]
