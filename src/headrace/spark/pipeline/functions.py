"""Python of the user's own, named in a pipeline's file as `FILE.py:NAME` or `MODULE:NAME`."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle

from headrace.core.errors import InvalidConfig


def load_function(where: str) -> Any:
    """The function or class.

    One from a file travels to the executors whole, so that they need not have the file; a module
    must be installed there too.
    """
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
    found = load_function(where)
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
