"""The whole disk as a tree of names and contents, each in two layers.

Copies share every node until one of them changes it. So it is cheap to keep a copy before each operation and
to apply many power cuts to it.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from recovery.crashlab.model.content import Content
from recovery.crashlab.model.names import LinkChange, NameChange, Names
from recovery.crashlab.model.pending import PendingName, PendingSector, PendingSize, PendingUnits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.model.disk_errors import Pages
    from recovery.crashlab.model.pending import Survival, Survivors

ROOT = 0


@dataclass(frozen=True, slots=True)
class _PendingRename:
    """A pending rename into another directory: the name arrives in one directory and leaves another."""

    came: PendingName
    went: PendingName


class Platter:
    """The files and directories of a disk, identified by numbers; a directory maps names to numbers."""

    def __init__(self, sector_size: int) -> None:
        self.sector_size = sector_size
        self.files: dict[int, Content] = {}
        self.directories: dict[int, Names] = {ROOT: Names()}
        self._next = 1
        self._changes = 0
        self._moves: list[_PendingRename] = []
        self.linked: set[int] = set()
        """The files that have had more than one name."""
        self._own: set[int] = {ROOT}  # the nodes that no copy shares

    def copy(self) -> Platter:
        """Return an independent copy of the disk."""
        twin = Platter(self.sector_size)
        twin.files, twin.directories = dict(self.files), dict(self.directories)
        twin._next, twin._own = self._next, set()
        twin._changes, twin._moves = self._changes, self._moves.copy()
        twin.linked = set(self.linked)
        self._own = set()
        return twin

    def file_to_change(self, number: int) -> Content:
        if number not in self._own:
            self.files[number] = self.files[number].copy()
            self._own.add(number)
        return self.files[number]

    def directory_to_change(self, number: int) -> Names:
        if number not in self._own:
            self.directories[number] = self.directories[number].copy()
            self._own.add(number)
        return self.directories[number]

    def add_file(self, directory: int, name: str) -> int:
        number = self._take_number()
        self.files[number] = Content(self.sector_size)
        self.change_name(directory, number, new=name)
        return number

    def add_directory(self, directory: int, name: str) -> int:
        number = self._take_number()
        self.directories[number] = Names()
        self.change_name(directory, number, new=name)
        return number

    def change_name(
        self, directory: int, node: int, *, old: str | None = None, new: str | None = None
    ) -> None:
        """Create, remove or change a name in one directory."""
        self._changes += 1
        kind = LinkChange if node in self.linked else NameChange
        self.directory_to_change(directory).change(kind(node, old, new, self._changes))

    def link(self, node: int, directory: int, name: str) -> None:
        """Add another name to a file."""
        self.linked.add(node)
        self.change_name(directory, node, new=name)

    def move(self, node: int, source: tuple[int, str], target: tuple[int, str]) -> None:
        """Move a name to another directory. No crash leaves the node without a name in either of them."""
        self.change_name(target[0], node, new=target[1])
        self.change_name(source[0], node, old=source[1])
        places = (target[0], source[0])
        came, went = (PendingName(number, len(self.directories[number].changes) - 1) for number in places)
        self._moves.append(_PendingRename(came, went))

    def sync_names(self, directory: int) -> None:
        """Make the names of a directory durable."""
        arrived = self._arrived_from(directory)
        for number in arrived:
            self.directory_to_change(number).sync()
        self._forget_moves(arrived)

    def fail_names(self, directory: int, seed: int, pages: Pages) -> None:
        """Apply a failed sync of a directory: some of its changes are written, all marked clean."""
        arrived = self._arrived_from(directory)
        for number in arrived - {directory}:
            self.directory_to_change(number).sync()
        mine = {move.came.index for move in self._moves if move.came.directory == directory}
        self.directory_to_change(directory).fail_sync(seed, pages, mine)
        self._forget_moves(arrived)

    def _arrived_from(self, directory: int) -> set[int]:
        """Return the directory and those that names were moved to from it, directly or not."""
        # They are synced together, because no system makes a removal durable and loses the new name of that
        # file.
        found, waiting = {directory}, [directory]
        while waiting:
            number = waiting.pop()
            new = {move.came.directory for move in self._moves if move.went.directory == number} - found
            found |= new
            waiting += new
        return found

    def _forget_moves(self, synced: set[int]) -> None:
        """Forget moves whose changes are durable, because the indexes will belong to other changes."""
        self._moves = [
            move for move in self._moves if not {move.came.directory, move.went.directory} & synced
        ]

    @property
    def next_number(self) -> int:
        """The number of the next file or directory."""
        return self._next

    def _take_number(self) -> int:
        number, self._next = self._next, self._next + 1
        self._own.add(number)
        return number

    def directory_at(self, parts: tuple[str, ...], path: str) -> int:
        """Return the number of the directory with that path."""
        number = ROOT
        for part in parts:
            found = self.directories[number].seen.get(part)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if found not in self.directories:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            number = found
        return number

    def place_of(self, parts: tuple[str, ...]) -> tuple[int, str]:
        """Return the directory and the last name of a path."""
        return self.directory_at(parts[:-1], "/".join(parts)), parts[-1]

    def node_at(self, parts: tuple[str, ...]) -> int:
        """Return the number of the file or directory that has that path now."""
        if not parts:
            return ROOT
        directory, name = self.place_of(parts)
        found = self.directories[directory].seen.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))
        return found

    def used(self) -> int:
        """Return how many bytes files with a name occupy. Removed files are not counted, even while open."""
        return sum(self.files[number].allocated for _, number in self._seen() if number in self.files)

    def seen(self) -> Iterator[tuple[str, int]]:
        """Yield every path with its node, a directory before its content."""
        return self._seen()

    def _seen(self, number: int = ROOT, path: str = "") -> Iterator[tuple[str, int]]:
        for name, node in sorted(self.directories[number].seen.items()):
            yield f"{path}/{name}", node
            if node in self.directories:
                yield from self._seen(node, f"{path}/{name}")

    def image(self) -> str:
        """Return a hash of everything that reads see."""
        hasher = blake2b(digest_size=16)
        for path, node in self._seen():
            kind = self.files[node].digest() if node in self.files else b"directory"
            hasher.update(b"%d %s %s" % (len(path), path.encode(), kind))
        return hasher.hexdigest()

    def pending(self) -> PendingUnits:
        """Return everything that a power cut could lose."""
        paths = {node: path for path, node in self._seen()}
        nodes = sorted(self._reachable())
        directories = [number for number in nodes if number in self.directories]
        files = [number for number in nodes if number in self.files]
        return PendingUnits(
            self.sector_size,
            tuple(
                PendingName(number, index, f"{paths.get(number, '')}/: {change}", change.number)
                for number in directories
                for index, change in enumerate(self.directories[number].changes)
            ),
            tuple(
                PendingSize(number, len(sizes), f"size of {paths.get(number, 'a removed file')}")
                for number in files
                if (sizes := self.files[number].sizes)
            ),
            tuple(
                PendingSector(
                    number, sector, len(versions), f"sector {sector} of {paths.get(number, 'a removed file')}"
                )
                for number in files
                for sector, versions in sorted(self.files[number].sectors.items())
            ),
        )

    def _without_half_moves(self, names: dict[int, set[int]]) -> None:
        for move in self._moves:
            if move.came.index not in names.get(move.came.directory, ()):
                names.get(move.went.directory, set()).discard(move.went.index)

    def _reachable(self) -> set[int]:
        found, waiting = {ROOT}, [ROOT]
        while waiting:
            names = self.directories.get(waiting.pop())
            new = names.nodes() - found if names is not None else set()
            found |= new
            waiting += new
        return found

    def after_cut(self, survivors: Survivors) -> Platter:
        """Return the disk after a power cut, when both layers are equal."""
        names, sizes, sectors = _by_node(survivors)
        self._without_half_moves(names)
        after = Platter(self.sector_size)
        after._next, after._changes, after._own = self._next, self._changes, set()
        after.linked = set(self.linked)
        self._own = set()  # settled nodes are shared with the disk after the cut
        after.directories = {}
        waiting, placed = [ROOT], {ROOT}
        while waiting:
            number = waiting.pop()
            if number in self.files:
                content = self.files[number]
                after.files[number] = (
                    content
                    if content.settled
                    else content.after_cut(sizes.get(number), sectors.get(number, {}))
                )
            else:
                left = self.directories[number]
                if not left.settled:
                    left = left.after_cut(names.get(number, ()))
                left = left.without(placed)  # a directory has one place, and is never below itself
                placed |= self.directories.keys() & left.seen.values()
                after.directories[number] = left
                waiting += left.seen.values()
        return after


def _by_node(
    survivors: Survivors,
) -> tuple[dict[int, set[int]], dict[int, Survival], dict[int, dict[int, Survival]]]:
    names: dict[int, set[int]] = {}
    sizes: dict[int, Survival] = {}
    sectors: dict[int, dict[int, Survival]] = {}
    for unit, survival in survivors.items():
        match unit:
            case PendingName(directory, index):
                names.setdefault(directory, set()).add(index)
            case PendingSize(file):
                sizes[file] = survival
            case PendingSector(file, sector):
                sectors.setdefault(file, {})[sector] = survival
    return names, sizes, sectors
