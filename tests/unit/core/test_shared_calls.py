"""One owner's fault costs no other its callback: by `call_each`, and wherever owners are called."""

import ast
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.core.shared_calls import call_each

SOURCE = Path(headrace.__file__).parent
PACKAGES = (
    *("broker", "groups", "replication", "node", "controller", "metadata", "web", "text"),
    *("gateway", "log", "coordinator"),
)

# Loops over owners without a guard, and why an owner that raises costs the others nothing there.
UNGUARDED = {
    "broker/processor.py kill task.cancel": "asyncio's own, raises nothing",
    "broker/delayed_fetch.py start partition.add_listener": "all of one request",
    "broker/delayed_fetch.py _stop_waiting partition.remove_listener": "an entry out of a table",
    "broker/in_process.py close request.fail": "an entry out of a table, a future that is told",
    "groups/consumer/group.py loaded self.timers.change": "all of one group, an entry in a table",
    "node/broker_server.py serve listener.open": "guards each connection itself",
    "node/broker_server.py stop_serving bound.close": "asyncio's own, raises nothing",
    "node/broker_server.py stop_serving task.cancel": "asyncio's own, raises nothing",
    "node/broker_server.py stop_serving listener.stop_reading": "guards each connection itself",
    "node/broker_server.py stop_serving listener.close": "guards each connection itself",
    "node/broker_server.py kill bound.close": "asyncio's own, raises nothing",
    "node/broker_server.py kill task.cancel": "asyncio's own, raises nothing",
    "node/broker_server.py kill listener.abort": "guards each connection itself",
    "node/system.py close thread.join": "threads of one pool, raises nothing",
    "groups/consumer/assignors/uniform.py run self._deal": "one decision for one group",
    "groups/consumer/assignors/uniform.py _keep self._give": "one decision for one group",
    "coordinator/runtime.py reply_when_committed loaded.writer.when_committed": (
        "all of one request"
    ),
    "metadata/builder.py freeze self._put_topic": "one image, right as a whole or not at all",
    "web/state.py stop_waiting watch.cancel": "asyncio's own, raises nothing",
    "web/instances.py rewind_unacknowledged self.member.seek": "all of one member",
    "log/compaction/key_map.py survivors self._resolve": "all of one log",
    "log/segments.py remove self.segment.data.files.remove": "all of one segment",
    "log/directory.py rename_deleted self._rename_deleted": "guards each partition itself",
    "log/recovery.py _drop_after segment.rename": "all of one log: it is offline as a whole",
    "log/recovery.py _drop_after segment.close": "all of one log: it is offline as a whole",
    "log/segments.py close segment.close": "all of one log",
    "replication/waiters.py remove listeners.pop": "an entry out of a table",
}


def test_those_behind_one_that_raises_are_called_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:
    called: list[int] = []

    def call(owner: int) -> None:
        called.append(owner)
        if owner % 2:
            raise RuntimeError(f"a mistake of {owner}")

    call_each(logging.getLogger("headrace.test"), "a number", range(4), call)
    assert called == [0, 1, 2, 3]
    assert "a mistake of 1" in caplog.text
    assert "a mistake of 3" in caplog.text


def _of_self(iterated: ast.expr) -> bool:
    """Whether it is one of an object's own collections, perhaps copied."""
    while True:
        match iterated:
            case ast.Call(ast.Name("tuple" | "list" | "sorted" | "reversed"), [first, *_]):
                iterated = first
            case ast.Call(ast.Attribute(inner, "values" | "items" | "keys")):
                iterated = inner
            case ast.Subscript(inner) | ast.BoolOp(_, [inner, *_]):
                iterated = inner
            case ast.Attribute(ast.Name("self")):
                return True
            case _:
                return False


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _unguarded(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in the order of the source, without those inside a `try`."""
    for statement in statements:
        if isinstance(statement, ast.Try):
            continue
        yield statement
        for field in ("body", "orelse"):
            yield from _unguarded(getattr(statement, field, []))


def calls_of_owners(source: str, where: str) -> Iterator[str]:
    """Where a loop over an object's own collection calls what it finds there, without a guard."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for loop in ast.walk(function):
            if not isinstance(loop, ast.For) or not _of_self(loop.iter):
                continue
            owners = _names(loop.target)
            for statement in _unguarded(loop.body):
                match statement:
                    case ast.Expr(ast.Call() as call) | ast.Expr(ast.Await(ast.Call() as call)):
                        pass
                    case _:
                        continue
                name = ast.unparse(call.func)
                by_owner = name.partition(".")[0] in owners
                on_owner = name.startswith("self.") and any(_names(a) & owners for a in call.args)
                if by_owner or on_owner:
                    yield f"{where} {function.name} {name}"


def _found() -> Iterator[str]:
    for room in PACKAGES:
        for path in sorted((SOURCE / room).rglob("*.py")):
            yield from calls_of_owners(path.read_text(), path.relative_to(SOURCE).as_posix())


def test_owners_are_called_under_guard_or_for_a_reason() -> None:
    assert set(_found()) == set(UNGUARDED)


@pytest.mark.parametrize(
    "body",
    [
        "for owner in self._owners:\n            owner.told()",
        "for key, owner in list(self._owners.items()):\n            self._tell(owner)",
        "for owner in tuple(self._owners):\n            if owner:\n                owner()",
    ],
)
def test_a_call_without_a_guard_is_found(body: str) -> None:
    source = f"class C:\n    def tell(self):\n        {body}\n"
    assert len(list(calls_of_owners(source, "here"))) == 1


def test_a_call_under_guard_is_not_found() -> None:
    source = (
        "class C:\n    def tell(self):\n        for owner in self._owners:\n            try:\n"
        "                owner.told()\n            except Exception:\n                pass\n"
    )
    assert not list(calls_of_owners(source, "here"))
