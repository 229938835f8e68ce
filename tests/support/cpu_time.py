"""What a piece of code costs, whatever else runs on the machine and in this process."""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def cpu_time() -> Iterator[Callable[[], float]]:
    """The CPU seconds of this thread since the beginning of the block.

    No garbage is collected meanwhile: a full collection walks over all that the tests of this
    process have imported and kept, half a second and more, and comes when it likes.
    """
    gc.disable()
    try:
        began = time.thread_time()
        yield lambda: time.thread_time() - began
    finally:
        gc.enable()
