"""What the HTTP API says about itself: health, metrics, the OpenAPI document, a page to read."""

import asyncio
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from headrace.core.errors import HeadraceError
from headrace.web import media
from headrace.web.call import HttpCall
from headrace.web.errors import RETRY_AFTER, HttpError
from headrace.web.metrics import CONTENT_TYPE, render
from headrace.web.operations import PROXY, Operations

PAGES = Operations("about")

_READY_SECONDS = 2.0

_TYPES = {".html": media.HTML, ".js": "text/javascript; charset=utf-8", ".css": "text/css"}
# Nothing is ever loaded from elsewhere, and no other page may frame this one.
_STRICT = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    b"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


class Health(msgspec.Struct):
    status: str


@PAGES.get("/", "An empty object, as REST Proxy answers here.", response=dict[str, Any], **PROXY)
async def root(_: HttpCall) -> dict[str, Any]:
    return {}


@PAGES.get("/healthz", "Whether the process answers.", response=Health)
async def healthz(_: HttpCall) -> Health:
    return Health("ok")


@PAGES.get("/readyz", "Whether requests can be served.", response=Health, errors=(503,))
async def readyz(call: HttpCall) -> Health:
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await call.gateway.admin.describe_cluster()
    except (TimeoutError, HeadraceError) as error:
        reason = str(error) or f"not within {_READY_SECONDS} seconds"
        raise HttpError(
            503, f"no broker answers: {reason}", hint="ask again later", headers=RETRY_AFTER
        ) from error
    return Health("ready")


@PAGES.get(
    "/metrics",
    "Metrics in Prometheus' text format.",
    response=str,
    produces=(CONTENT_TYPE,),
)
async def metrics(call: HttpCall) -> bytes:
    return await render(call.state.sources)


@PAGES.get("/openapi.json", "This document.", response=dict[str, Any])
async def openapi(call: HttpCall) -> bytes:
    return call.state.openapi_document()


@PAGES.get(
    "/docs", "This API for people, to read and to try.", response=str, produces=(media.HTML,)
)
async def docs(call: HttpCall) -> bytes:
    return _asset(call, "docs.html")


@PAGES.get(
    "/docs/{asset}",
    "A part of that page.",
    response=str,
    produces=("text/javascript; charset=utf-8", "text/css"),
    errors=(404,),
)
async def docs_asset(call: HttpCall) -> bytes:
    return _asset(call, call.path["asset"])


@PAGES.get("/favicon.ico", "Browsers ask for one; there is none.", status=204)
async def favicon(_: HttpCall) -> None:
    return None


def _asset(call: HttpCall, name: str) -> bytes:
    content = _assets().get(name)
    if content is None:
        raise HttpError(404, f"this page has no part {name[:40]!r}")
    call.media = _TYPES[name[name.rindex(".") :]]
    call.response_headers += [
        (b"content-security-policy", _STRICT),
        (b"x-content-type-options", b"nosniff"),
    ]
    return content


@cache
def _assets() -> dict[str, bytes]:
    """The page's files by name; only these can be asked for."""
    folder = files("headrace.web") / "static"
    return {
        entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.name[-4:] != ".pyc"
    }
