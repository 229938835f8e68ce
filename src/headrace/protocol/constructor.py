"""Compiles the keyword constructor of a declared struct, and makes the defaults it hands out."""

from typing import Any

from headrace.protocol.fields import Field


def compile_constructor(cls: Any) -> Any:
    """An `__init__` with one keyword per field, as fast as one written by hand."""
    scope: dict[str, Any] = {}
    parameters: list[str] = []
    body: list[str] = []
    for name, field in cls.fields_declared.items():
        value = name
        if field.required:
            parameters.append(name)
        elif isinstance(field.default, tuple):
            parameters.append(f"{name}=None")
            # Null may be what the caller means, so the absent value needs a marker of its own.
            if field.nullable_since is not None:
                parameters[-1] = f"{name}=_UNSET"
                value = f"[] if {name} is _UNSET else {name}"
            else:
                value = f"[] if {name} is None else {name}"
        elif field.kind == "struct" and field.default is not None:
            parameters.append(f"{name}=_default_{name}")
            scope[f"_default_{name}"] = shared_default(field.item)
        else:
            parameters.append(f"{name}=_default_{name}")
            scope[f"_default_{name}"] = field.default
        body.append(f"    self.{name} = {value}")
    scope["_UNSET"] = object()
    signature = "*, " + ", ".join(parameters) if parameters else ""
    source = f"def __init__(self, {signature}):\n" + "\n".join(body or ["    pass"])
    exec(compile(source, f"<{cls.__name__} constructor>", "exec"), scope)
    return scope["__init__"]


def shared_default(cls: Any) -> Any:
    """The one read-only instance that stands for "all fields at their defaults".

    Nested structs that are absent from the bytes (fencing hints, snapshot ids) are common on the
    hot path; one shared object saves making them, and refuses to be changed.
    """
    if "default_shared" not in cls.__dict__:
        template = cls()
        frozen = type(cls.__name__, (cls,), {"__setattr__": _refuse, "__doc__": cls.__doc__})
        instance: Any = object.__new__(frozen)
        for name in cls.fields_declared:
            object.__setattr__(instance, name, getattr(template, name))
        cls.default_shared = instance
    return cls.default_shared


def _refuse(self: Any, *_: object) -> None:
    name = type(self).__name__
    raise AttributeError(f"this {name} is a shared default; assign a new one instead")


def default_expression(field: Field, scope: dict[str, Any]) -> str:
    """Source text for the value of a field that the bytes do not carry."""
    default = field.default
    if isinstance(default, tuple):
        return "[]"
    if default is None or isinstance(default, bool | int | str | bytes):
        return repr(default)
    if field.kind == "struct":
        name = f"default_{field.item.__name__}"
        scope[name] = shared_default(field.item)
    else:
        name = f"default{len(scope)}"
        scope[name] = default
    return name
