"""Every place in the product's source that asks for a sync, found by reading the source."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeGuard

import headrace

SOURCE = Path(headrace.__file__).parent
# The interface itself, and its real form.
NOT_CALLERS = ("core/files.py", "log/real_files.py", "log/descriptor_io.py")
# Here members of groups synchronise, not files: these packages reach the disk through a log.
NO_FILES = ("broker/", "groups/", "client/", "gateway/", "text/", "web/", "spark/")


@dataclass(frozen=True, slots=True)
class SyncSite:
    """One call of `sync` or `sync_directory`, directly or through a method of that name."""

    module: str
    function: str
    call: str
    first_line: int
    last_line: int

    def __str__(self) -> str:
        return f"{self.module} {self.function} {self.call}"

    @property
    def places(self) -> frozenset[str]:
        """As the simulated disk names them; a call may span several lines."""
        name = self.module.rpartition("/")[2]
        return frozenset(f"{name}:{line}" for line in range(self.first_line, self.last_line + 1))


def all_sync_sites() -> list[SyncSite]:
    return [
        site
        for path in sorted(SOURCE.rglob("*.py"))
        if (module := path.relative_to(SOURCE).as_posix()) not in NOT_CALLERS
        and not module.startswith(NO_FILES)
        for site in _sites_in(module, path.read_text())
    ]


def _sites_in(module: str, source: str) -> Iterator[SyncSite]:
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if _is_sync(node):
                    call = ast.get_source_segment(source, node) or ""
                    last_line = node.end_lineno or node.lineno
                    yield SyncSite(module, function.name, call, node.lineno, last_line)


def _is_sync(node: ast.AST) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("sync", "sync_directory")
    )
