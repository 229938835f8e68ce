"""What commands that run until they are told to stop have in common."""

import asyncio
import signal
from collections.abc import Callable

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` instead of dying of a signal."""
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        try:
            loop.add_signal_handler(number, stop)
        except NotImplementedError:  # Windows: its loops know no signals.
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed, else the platform's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
