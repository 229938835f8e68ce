"""What a data directory must be like before its logs are opened."""

import logging

from headrace.core.errors import StartupRefused
from headrace.core.files import FileSystem
from headrace.log.names import (
    CLEAN_SHUTDOWN,
    LOCK,
    META_PROPERTIES,
    RECOVERY_POINTS,
    parse_partition,
)

logger = logging.getLogger(__name__)


def make_durable_directory(files: FileSystem, path: str) -> None:
    """Create the directory; each new name is synced, or all below it could vanish with it."""
    missing: list[str] = []
    while path and not files.exists(path):
        missing.append(path)
        path = path.rpartition("/")[0]
    if missing:
        files.make_directory(missing[0])
        for created in missing:
            files.sync_directory(created.rpartition("/")[0] or ("/" if created[0] == "/" else "."))


def require_no_data(files: FileSystem, path: str) -> None:
    """A directory without an owner must be new: its first file is on disk before any other."""
    names = files.list_directory(path)
    held = [name for name in names if parse_partition(name) is not None]
    if held:
        raise StartupRefused(
            f"{path} holds partitions ({held[0]}) but no {META_PROPERTIES}",
            hint="restore the file from a backup; without it the directory's owner is unknown",
        )
    # What a start that was broken off leaves, and what is in every new file system.
    foreign = sorted(
        name for name in names if not name.startswith((LOCK, RECOVERY_POINTS, "lost+found"))
    )
    if foreign:
        logger.warning(
            "the data directory is not empty and not ours: path=%s first=%s names=%d",
            path,
            foreign[0],
            len(foreign),
        )


def remove_clean_marker(files: FileSystem, path: str) -> bool:
    """Whether the last stop was clean; the marker is gone, for certain, when this returns."""
    marker = f"{path}/{CLEAN_SHUTDOWN}"
    if not files.exists(marker):
        return False
    files.remove(marker)
    # Should it come back after a crash, that crash would pass for a clean stop.
    files.sync_directory(path)
    return True
