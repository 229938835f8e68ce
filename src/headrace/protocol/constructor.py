"""Compiles the keyword constructor of a declared struct."""

from typing import Any


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
            # Null may be what the caller means, so the absent value needs a mark of its own.
            if field.nullable_since is not None:
                parameters[-1] = f"{name}=_UNSET"
                value = f"[] if {name} is _UNSET else {name}"
            else:
                value = f"[] if {name} is None else {name}"
        elif field.kind == "struct" and field.default is not None:
            parameters.append(f"{name}=None")
            scope[f"_new_{name}"] = field.item
            value = f"_new_{name}() if {name} is None else {name}"
        else:
            parameters.append(f"{name}=_default_{name}")
            scope[f"_default_{name}"] = field.default
        body.append(f"    self.{name} = {value}")
    scope["_UNSET"] = object()
    signature = "*, " + ", ".join(parameters) if parameters else ""
    source = f"def __init__(self, {signature}):\n" + "\n".join(body or ["    pass"])
    exec(compile(source, f"<{cls.__name__} constructor>", "exec"), scope)
    return scope["__init__"]
