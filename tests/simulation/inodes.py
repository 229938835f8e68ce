"""What a simulated disk holds: files and directories, each with what is stable and what is not.

A change is *visible* at once and *stable* only after a sync. A power cut keeps the stable
state and whatever part of the later changes a `Survival` picks; it may pick as unkindly as a
real disk does: nothing, a prefix, a torn write with zeros or garbage behind the tear, or blocks
in any order.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Protocol

SECTOR_BYTES = 512


class Change(NamedTuple):
    """One unsynced change of a file: bytes written at a position, or (without bytes) a cut."""

    position: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            del content[self.position :]
            content.extend(bytes(self.position - len(content)))
        else:
            content.extend(bytes(max(0, self.position - len(content))))
            content[self.position : self.position + len(self.data)] = self.data


class FileInode:
    """A file's bytes: as programs see them, as they are on the platter, and the steps between."""

    __slots__ = ("changes", "modified_ms", "settled", "stable", "visible")

    def __init__(self, content: bytes = b"") -> None:
        self.visible = bytearray(content)
        self.stable = bytearray(content)
        self.changes: list[Change] = []
        self.settled = 0  # changes that have become stable, ever
        self.modified_ms = 0

    def change(self, change: Change) -> None:
        change.apply(self.visible)
        self.changes.append(change)

    def changes_ever(self) -> int:
        return self.settled + len(self.changes)

    def sync(self, up_to: int | None = None) -> None:
        """Make the changes stable; with `up_to`, only that many of all that ever were."""
        count = len(self.changes) if up_to is None else max(0, up_to - self.settled)
        for change in self.changes[:count]:
            change.apply(self.stable)
            self.settled += 1
        del self.changes[:count]

    def fail_sync(self) -> None:
        """As the kernel does it: the pages are dropped, look clean, and later syncs succeed."""
        self.changes = [
            change if change.data is None else Change(change.position, bytes(len(change.data)))
            for change in self.changes
        ]

    def copy(self) -> "FileInode":
        other = FileInode()
        other.visible[:] = self.visible
        other.stable[:] = self.stable
        other.changes = list(self.changes)
        other.settled = self.settled
        other.modified_ms = self.modified_ms
        return other


class DirectoryInode:
    """A directory's names, visible and stable; each change is one atomic step (a rename too)."""

    __slots__ = ("changes", "stable", "visible")

    def __init__(self) -> None:
        self.visible: dict[str, Inode] = {}
        self.stable: dict[str, Inode] = {}
        self.changes: list[dict[str, Inode | None]] = []

    def change(self, names: dict[str, "Inode | None"]) -> None:
        _apply_names(self.visible, names)
        self.changes.append(names)

    def sync(self) -> None:
        self.stable = dict(self.visible)
        self.changes.clear()


Inode = FileInode | DirectoryInode
NameChange = dict[str, Inode | None]


def _apply_names(names: dict[str, Inode], change: dict[str, Inode | None]) -> None:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode


class Survival(Protocol):
    """Chooses what a power cut leaves of the changes that were not synced."""

    def names(self, changes: Sequence[NameChange]) -> Sequence[NameChange]:
        """Which of a directory's unsynced changes survive, in their order."""
        ...

    def content(self, stable: bytes, changes: Sequence[Change]) -> bytes:
        """What a file holds afterwards."""
        ...


class Fixed:
    """All or nothing, apart for names and contents: the four corners of what may happen."""

    def __init__(self, *, names: bool, contents: bool) -> None:
        self._names = names
        self._contents = contents

    def names(self, changes: Sequence[NameChange]) -> Sequence[NameChange]:
        return changes if self._names else ()

    def content(self, stable: bytes, changes: Sequence[Change]) -> bytes:
        return _applied(stable, changes if self._contents else ())


LOSE_EVERYTHING = Fixed(names=False, contents=False)
KEEP_EVERYTHING = Fixed(names=True, contents=True)
KEEP_NAMES = Fixed(names=True, contents=False)
KEEP_CONTENTS = Fixed(names=False, contents=True)


class NewestNames:
    """Of a directory's changes only the newest survives, and what it builds on.

    Directories promise no order: a rename may be on disk while an earlier one of other names
    is not.
    """

    def __init__(self, *, contents: bool) -> None:
        self._contents = contents

    def names(self, changes: Sequence[NameChange]) -> Sequence[NameChange]:
        kept: list[NameChange] = []
        wanted: set[str] = set()
        for change in reversed(changes):
            if not kept or wanted & change.keys():
                kept.append(change)
                wanted |= change.keys()
        return kept[::-1]

    def content(self, stable: bytes, changes: Sequence[Change]) -> bytes:
        return _applied(stable, changes if self._contents else ())


class Torn:
    """Older writes survive; of the newest one of each file only a part does."""

    def __init__(self, filler: int, *, part: float = 0.5, names: bool = True) -> None:
        self._filler = filler
        self._part = part
        self._names = names

    def names(self, changes: Sequence[NameChange]) -> Sequence[NameChange]:
        return changes if self._names else ()

    def content(self, stable: bytes, changes: Sequence[Change]) -> bytes:
        if not changes or changes[-1].data is None:
            return _applied(stable, changes)
        position, data = changes[-1].position, changes[-1].data
        kept = int(len(data) * self._part)
        torn = data[:kept] + bytes([self._filler]) * (len(data) - kept)
        return _applied(stable, [*changes[:-1], Change(position, torn)])


class Seeded:
    """A different fate for every file and directory, drawn from a seed.

    Names survive in the order of their changes, as journals keep it, or in `any_order`.
    """

    def __init__(self, random: Random, *, any_order: bool = False) -> None:
        self._random = random
        self._any_order = any_order

    def names(self, changes: Sequence[NameChange]) -> Sequence[NameChange]:
        fate = self._random.choice(("none", "all", "some"))
        if fate == "none":
            return ()
        if fate == "all":
            return changes
        if self._any_order:
            return _without(changes, lambda _: self._random.random() < 0.5)
        return changes[: self._random.randint(0, len(changes))]

    def content(self, stable: bytes, changes: Sequence[Change]) -> bytes:
        if not changes:
            return stable
        fate = self._random.choice(("none", "all", "prefix", "torn", "blocks"))
        if fate == "none":
            return stable
        if fate == "all":
            return _applied(stable, changes)
        if fate == "blocks":
            return self._blocks(stable, changes)
        count = self._random.randrange(len(changes))
        kept = list(changes[:count])
        position, data = changes[count]
        if fate == "torn" and data:
            kept.append(Change(position, self._tear(data)))
        return _applied(stable, kept)

    def _tear(self, data: bytes) -> bytes:
        cut = self._random.randrange(len(data))
        rest = len(data) - cut
        filler = self._random.choice(
            (b"", bytes(rest), self._random.randbytes(self._random.randint(1, rest)))
        )
        return data[:cut] + filler

    def _blocks(self, stable: bytes, changes: Sequence[Change]) -> bytes:
        """The new length, but every sector has either its old bytes or its new ones."""
        after = bytearray(_applied(stable, changes))
        before = stable[: len(after)] + bytes(max(0, len(after) - len(stable)))
        for start in range(0, len(after), SECTOR_BYTES):
            if self._random.random() < 0.5:
                after[start : start + SECTOR_BYTES] = before[start : start + SECTOR_BYTES]
        return bytes(after)


def _without(
    changes: Sequence[NameChange], is_lost: Callable[[NameChange], bool]
) -> list[NameChange]:
    """Some changes are lost, and with each of them every later one that touches its names."""
    kept: list[NameChange] = []
    lost: set[str] = set()
    for change in changes:
        if lost & change.keys() or is_lost(change):
            lost |= change.keys()
        else:
            kept.append(change)
    return kept


def _applied(stable: bytes, changes: Sequence[Change]) -> bytes:
    content = bytearray(stable)
    for change in changes:
        change.apply(content)
    return bytes(content)


def copy_tree(directory: DirectoryInode) -> DirectoryInode:
    """An independent copy, unsynced changes and all."""
    copies: dict[int, Inode] = {}

    def copy_of(inode: Inode) -> Inode:
        if id(inode) not in copies:
            if isinstance(inode, FileInode):
                copies[id(inode)] = inode.copy()
            else:
                copy = copies[id(inode)] = DirectoryInode()
                copy.visible = {name: copy_of(child) for name, child in inode.visible.items()}
                copy.stable = {name: copy_of(child) for name, child in inode.stable.items()}
                copy.changes = [
                    {name: child and copy_of(child) for name, child in change.items()}
                    for change in inode.changes
                ]
        return copies[id(inode)]

    root = copy_of(directory)
    assert isinstance(root, DirectoryInode)
    return root


def survivor_of(directory: DirectoryInode, survival: Survival) -> DirectoryInode:
    """The tree as the machine finds it after a power cut; everything in it is stable."""
    survivors: dict[int, Inode] = {}

    def survivor(inode: Inode) -> Inode:
        if id(inode) not in survivors:
            if isinstance(inode, FileInode):
                content = survival.content(bytes(inode.stable), inode.changes)
                file = survivors[id(inode)] = FileInode(content)
                file.modified_ms = inode.modified_ms
            else:
                survivors[id(inode)] = result = DirectoryInode()
                names = dict(inode.stable)
                for change in survival.names(inode.changes):
                    _apply_names(names, change)
                result.visible = {name: survivor(child) for name, child in names.items()}
                result.sync()
        return survivors[id(inode)]

    root = survivor(directory)
    assert isinstance(root, DirectoryInode)
    return root
