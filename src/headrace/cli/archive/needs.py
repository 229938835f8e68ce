"""What the archive commands need beyond the broker."""

import importlib.util

from headrace.core.errors import InvalidConfig


def require_arrow() -> None:
    """Say what to install, rather than fail in the middle of an import."""
    for name in ("pyarrow", "numpy"):
        if importlib.util.find_spec(name) is None:
            raise InvalidConfig(
                f"archives need the package {name}",
                hint="pip install '.[spark]' in a checkout, and '.[delta]' for Delta tables",
            )
