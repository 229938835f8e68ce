"""A file replaced as a whole: who opens it sees the old text or the new, never half of one."""

import os
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    staging = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        staging.write_text(text, encoding="utf-8")
        os.replace(staging, path)
    finally:
        staging.unlink(missing_ok=True)
