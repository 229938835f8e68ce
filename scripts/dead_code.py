"""Name functions, methods, classes and imports of the product that nothing uses, not even a test.

vulture finds candidates by name. Fields and constants are left out, since many stand for what is
on the wire; so are names that others call: asyncio, pytest and the handler table.
"""

import sys

from vulture import Vulture

PATHS = ["src", "tests", "bench", "scripts", "fuzz"]
KINDS = {"class", "function", "import", "method", "property", "unreachable_code"}
CALLED_BY_OTHERS = [
    "__getattr__",
    "__call__",
    # asyncio.Protocol and asyncio's loops
    "connection_made",
    "connection_lost",
    "buffer_updated",
    "get_buffer",
    "eof_received",
    "pause_writing",
    "resume_writing",
    "data_received",
    # uvicorn's HTTP protocol
    "on_message_begin",
    "on_headers_complete",
    "send_400_response",
    "timeout_keep_alive_handler",
    # the standard library's http.server
    "do_GET",
    "log_message",
    # PySpark's data sources
    "streamReader",
    "streamWriter",
]
# Messages are loaded by name, and the codec is complete before its handlers are. Routes of the
# HTTP API are called by the table that their decorators fill.
ROUTES = [f"@{noun}.*" for noun in ("CLUSTER", "CONSUMERS", "GROUPS", "PAGES", "READ")]
ROUTES += [f"@{noun}.*" for noun in ("RECORDS", "STREAMS", "TOPICS")]
DECORATORS = ["@handles*", "@message*", "@pytest.fixture*", *ROUTES]


def main() -> None:
    finder = Vulture(ignore_names=CALLED_BY_OTHERS, ignore_decorators=DECORATORS)
    finder.scavenge(PATHS)
    dead = [
        item
        for item in finder.get_unused_code(min_confidence=60)
        if item.typ in KINDS and "src" in item.filename.parts
    ]
    for item in dead:
        print(f"{item.filename}:{item.first_lineno}: nothing uses {item.typ} {item.name}")
    sys.exit(1 if dead else 0)


if __name__ == "__main__":
    main()
