"""The real disk without the waiting: syncs return at once.

A killed process loses nothing by it, since the page cache lives on; only a power cut would,
and no test survives one.
"""

from headrace.log.real_files import RealFile, RealFileSystem


class UnsyncedFile(RealFile):
    """A file whose sync does nothing."""

    __slots__ = ()

    def sync(self) -> None:
        return


class UnsyncedFileSystem(RealFileSystem):
    """A file system whose syncs do nothing."""

    def open(self, path: str, *, create: bool = False) -> RealFile:
        file = super().open(path, create=create)
        # The same file in all but one call; a wrapper would cost something on every call.
        file.__class__ = UnsyncedFile
        return file

    def sync_directory(self, path: str) -> None:  # noqa: ARG002 - the name is the interface
        return
