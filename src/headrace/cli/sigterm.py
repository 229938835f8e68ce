"""SIGTERM for commands that hold something others wait for, as a member of a group does."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGTERM_EXIT_CODE = 128 + signal.SIGTERM


@contextmanager
def exit_on_sigterm() -> Iterator[None]:
    """SIGTERM ends what runs in here as Ctrl-C does, by an exception: what is open is closed.

    The exit code is the shell's own for it. A second SIGTERM ends the process at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # no other thread may set handlers, and signals do not reach it anyway
        return

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature
        signal.signal(number, signal.SIG_DFL)
        sys.exit(SIGTERM_EXIT_CODE)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
