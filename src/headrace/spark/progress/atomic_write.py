"""A file replaced as a whole: who opens it sees the old text or the new, never half of one."""

import os
import uuid
from pathlib import Path


def replace_text(path: Path, text: str) -> None:
    # A name that nobody has, and a file that was not there before: it is removed again.
    staging = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}")
    with staging.open("x", encoding="utf-8") as file:
        try:
            file.write(text)
            file.close()
            os.replace(staging, path)
        finally:
            staging.unlink(missing_ok=True)
