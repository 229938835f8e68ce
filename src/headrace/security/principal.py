"""The identity behind a connection."""

from typing import NamedTuple


class Principal(NamedTuple):
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
