"""CRC-32C by the `crc32c` package, without the 40 ms that importing the package itself costs.

That package's `__init__` pulls in `importlib.metadata`, which pulls in `email`, `zipfile` and
more, all to learn its own version. The extension module beside it is all we need, so it is
loaded by itself; should a future release be laid out differently, the package itself is imported.
"""

from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Protocol, cast

from headrace.core.files import Buffer


class Checksum(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int: ...


def _load() -> Checksum:
    package = PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            return cast(Checksum, module.crc32c)
    from crc32c import crc32c

    return cast(Checksum, crc32c)


crc32c: Checksum = _load()
"""`crc32c(data, value=0)`: the checksum of `data`, or of what gave `value` followed by `data`."""
