"""Python of the user's own, named in a pipeline's file as `FILE.py:NAME` or `MODULE:NAME`."""

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pyarrow as pa
from pyspark import cloudpickle

from headrace.core.errors import InvalidConfig

_NO_TIME: Final = pa.scalar(None, pa.timestamp("us", tz="UTC"))


def load_function(where: str, carried: str | None = None) -> Any:
    """The function or class.

    One from a file travels to the executors whole, so that they need not have the file; a module
    must be installed there too. A column that is `carried`, one value for a whole batch, goes
    round the function, which neither sees nor loses it.
    """
    found = _found(where)
    return found if carried is None else _carrying(found, carried)


def _carrying(of_batches: Any, carried: str) -> Any:
    def around(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        first = next(batches, None)
        if first is None:
            yield from (_with(each, carried, _NO_TIME) for each in of_batches(iter(())))
            return
        column = first.column(carried)
        value = column[0] if len(column) else pa.scalar(None, column.type)
        stripped = (each.drop_columns([carried]) for each in chain([first], batches))
        for each in of_batches(stripped):
            yield _with(each, carried, value)

    return around


def _with(batch: pa.RecordBatch, name: str, value: pa.Scalar) -> pa.RecordBatch:
    # In front: Spark takes columns by their place, and leaves out what is more than was declared.
    return batch.add_column(0, name, pa.repeat(value, batch.num_rows))


def _found(where: str) -> Any:
    source, _, name = where.rpartition(":")
    module = _from_file(Path(source)) if source.endswith(".py") else _imported(source)
    found = getattr(module, name, None)
    if found is None:
        raise InvalidConfig(f"{source} has no {name!r}")
    if not callable(found):
        raise InvalidConfig(f"{where} cannot be called: it is no function and no class")
    return found


def load_processor(where: str) -> Any:
    """An instance of a StatefulProcessor."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    _require_protobuf()
    found = _found(where)
    if not (isinstance(found, type) and issubclass(found, StatefulProcessor)):
        raise InvalidConfig(f"{where} is not a subclass of pyspark's StatefulProcessor")
    return found()


def _require_protobuf() -> None:
    """Spark's Python workers talk about state by it, and pyspark does not bring it along."""
    try:
        importlib.import_module("google.protobuf")
    except ModuleNotFoundError as error:
        raise InvalidConfig(
            "a stateful step needs the package protobuf, here and on the executors",
            hint="pip install protobuf",
        ) from error


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever the module does when it is imported
        raise InvalidConfig(f"cannot import {name}: {type(error).__name__}: {error}") from error


def _from_file(path: Path) -> ModuleType:
    # By its whole path: two pipelines may each have a file functions.py.
    name = f"headrace_pipeline_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidConfig(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file does when it is run
        del sys.modules[name]
        raise InvalidConfig(f"cannot load {path}: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]  # has no types
    return module
