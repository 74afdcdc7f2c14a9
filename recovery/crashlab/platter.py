"""The whole disk as a tree of names and contents, each in two layers.

Copies share every node until one side changes it, so a state can be kept before each operation and cut
in many ways at the price of what the cut touches.
"""

from __future__ import annotations

import errno
import os
from hashlib import blake2b
from typing import TYPE_CHECKING

from recovery.crashlab.content import Content
from recovery.crashlab.names import NameChange, Names
from recovery.crashlab.pending import Pending, PendingName, PendingSector, PendingSize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.pending import Survival, Survivors

ROOT = 0


class Platter:
    """Numbered files and directories; a name is an entry in a directory that gives a number."""

    def __init__(self, sector_size: int) -> None:
        self.sector_size = sector_size
        self.files: dict[int, Content] = {}
        self.directories: dict[int, Names] = {ROOT: Names()}
        self._next = 1
        self._own: set[int] = {ROOT}  # the nodes that no copy shares

    def copy(self) -> Platter:
        """The same disk, to be changed apart."""
        twin = Platter(self.sector_size)
        twin.files, twin.directories = dict(self.files), dict(self.directories)
        twin._next, twin._own = self._next, set()
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

    def add_file(self, directory: int, name: str) -> None:
        number = self._take_number()
        self.files[number] = Content(self.sector_size)
        self.directory_to_change(directory).change(NameChange(number, new=name))

    def add_directory(self, directory: int, name: str) -> None:
        number = self._take_number()
        self.directories[number] = Names()
        self.directory_to_change(directory).change(NameChange(number, new=name))

    def _take_number(self) -> int:
        number, self._next = self._next, self._next + 1
        self._own.add(number)
        return number

    def directory_at(self, parts: tuple[str, ...], path: str) -> int:
        """The number of a directory, by the names that lead to it."""
        number = ROOT
        for part in parts:
            found = self.directories[number].seen.get(part)
            if found is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if found not in self.directories:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            number = found
        return number

    def used(self) -> int:
        """Bytes that the named files occupy. A removed file is not counted, even while it is open."""
        return sum(self.files[number].allocated for _, number in self._seen() if number in self.files)

    def _seen(self, number: int = ROOT, path: str = "") -> Iterator[tuple[str, int]]:
        for name, node in sorted(self.directories[number].seen.items()):
            yield f"{path}/{name}", node
            if node in self.directories:
                yield from self._seen(node, f"{path}/{name}")

    def image(self) -> str:
        """A hash of all that reads see; after a cut nothing else is there."""
        hasher = blake2b(digest_size=16)
        for path, node in self._seen():
            kind = self.files[node].digest() if node in self.files else b"directory"
            hasher.update(b"%d %s %s" % (len(path), path.encode(), kind))
        return hasher.hexdigest()

    def pending(self) -> Pending:
        """Everything that a cut could take."""
        paths = {node: path for path, node in self._seen()}
        nodes = sorted(self._reachable())
        directories = [number for number in nodes if number in self.directories]
        files = [number for number in nodes if number in self.files]
        return Pending(
            self.sector_size,
            tuple(
                PendingName(number, index, f"{paths.get(number, '')}/: {change}")
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

    def _reachable(self) -> set[int]:
        found, waiting = {ROOT}, [ROOT]
        while waiting:
            names = self.directories.get(waiting.pop())
            new = names.nodes() - found if names is not None else set()
            found |= new
            waiting += new
        return found

    def after_cut(self, survivors: Survivors) -> Platter:
        """The disk when the power is back: both layers are what survived."""
        names, sizes, sectors = _by_node(survivors)
        after = Platter(self.sector_size)
        after._next, after._own = self._next, set()
        self._own = set()  # settled nodes are shared with the disk after the cut
        after.directories = {}
        waiting = [ROOT]
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
                directory = self.directories[number]
                after.directories[number] = (
                    directory if directory.settled else directory.after_cut(names.get(number, ()))
                )
                waiting += after.directories[number].seen.values()
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
