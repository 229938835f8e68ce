"""What commands that run until they are told to stop have in common."""

import asyncio
import logging
import signal
import sys
from collections.abc import Callable

logger = logging.getLogger(__name__)

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` instead of dying of a signal."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows: its loops know no signals.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


def announce(text: str, form: str) -> None:
    """Tell on stderr where we are, at any log level; as JSON where all lines are to be that."""
    if form == "json":
        said = logger.makeRecord(logger.name, logging.INFO, "", 0, "ready: text=%s", (text,), None)
        logger.handle(said)
    else:
        print(f"headrace: {text}", file=sys.stderr, flush=True)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, else the platform's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
