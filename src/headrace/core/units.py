"""Durations and sizes as people write them, for keys that count milliseconds or bytes."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_DURATION: Final = re.compile(
    r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.IGNORECASE
)
_DURATION_MS: Final = (86_400_000, 3_600_000, 60_000, 1_000, 1)
_SIZE: Final = re.compile(r"(\d+) ?(kib|mib|gib|tib|kb|mb|gb|tb|b)", re.IGNORECASE)
_SIZE_BYTES: Mapping[str, int] = MappingProxyType(
    {
        "b": 1,
        "kb": 10**3,
        "mb": 10**6,
        "gb": 10**9,
        "tb": 10**12,
        "kib": 2**10,
        "mib": 2**20,
        "gib": 2**30,
        "tib": 2**40,
    }
)


def plain_number(name: str, text: str) -> str:
    """`1h`, `7d`, `1d12h` for a key in milliseconds and `10MB`, `1GiB` for one in bytes as the
    number that Kafka's key takes; anything else as it is, for the key itself to judge."""
    word = text.strip()
    if name.endswith(".ms"):
        duration = _DURATION.fullmatch(word)
        if duration is not None and word:
            parts = zip(duration.groups(), _DURATION_MS, strict=True)
            return str(sum(int(count) * unit for count, unit in parts if count))
    if "bytes" in name.split("."):
        size = _SIZE.fullmatch(word)
        if size is not None:
            return str(int(size[1]) * _SIZE_BYTES[size[2].lower()])
    return text
