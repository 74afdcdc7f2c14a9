"""The whole disk as a tree of names and contents, each in two layers.

Copies share every node until one side changes it, so a state can be kept before each operation and cut
in many ways at the price of what the cut touches.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from recovery.crashlab.content import Content
from recovery.crashlab.names import LinkChange, NameChange, Names
from recovery.crashlab.pending import Pending, PendingName, PendingSector, PendingSize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.faults import Pages
    from recovery.crashlab.pending import Survival, Survivors

ROOT = 0


@dataclass(frozen=True, slots=True)
class _Move:
    """A rename into another directory, while it waits: an arrival there and a removal here."""

    came: PendingName
    went: PendingName


class Platter:
    """Numbered files and directories; a name is an entry in a directory that gives a number."""

    def __init__(self, sector_size: int) -> None:
        self.sector_size = sector_size
        self.files: dict[int, Content] = {}
        self.directories: dict[int, Names] = {ROOT: Names()}
        self._next = 1
        self._changes = 0
        self._moves: list[_Move] = []
        self.linked: set[int] = set()
        """The files that have had more than one name."""
        self._own: set[int] = {ROOT}  # the nodes that no copy shares

    def copy(self) -> Platter:
        """The same disk, to be changed apart."""
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
        """A name comes, goes, or becomes another one in the same directory."""
        self._changes += 1
        kind = LinkChange if node in self.linked else NameChange
        self.directory_to_change(directory).change(kind(node, old, new, self._changes))

    def link(self, node: int, directory: int, name: str) -> None:
        """A further name of a file."""
        self.linked.add(node)
        self.change_name(directory, node, new=name)

    def move(self, node: int, source: tuple[int, str], target: tuple[int, str]) -> None:
        """A name goes from one directory to another: no crash leaves the node without either."""
        self.change_name(target[0], node, new=target[1])
        self.change_name(source[0], node, old=source[1])
        places = (target[0], source[0])
        came, went = (PendingName(number, len(self.directories[number].changes) - 1) for number in places)
        self._moves.append(_Move(came, went))

    def sync_names(self, directory: int) -> None:
        """Writes back the names of a directory."""
        arrived = self._arrived_from(directory)
        for number in arrived:
            self.directory_to_change(number).sync()
        self._forget_moves(arrived)

    def fail_names(self, directory: int, seed: int, pages: Pages) -> None:
        """What a failed sync of a directory leaves: some of its names are written, all are called clean."""
        arrived = self._arrived_from(directory)
        for number in arrived - {directory}:
            self.directory_to_change(number).sync()
        mine = {move.came.index for move in self._moves if move.came.directory == directory}
        self.directory_to_change(directory).fail_sync(seed, pages, mine)
        self._forget_moves(arrived)

    def _arrived_from(self, directory: int) -> set[int]:
        """The directory, those that names were moved to from there, those from there on, and so on."""
        # No system makes the removal of a renamed name durable and loses its arrival elsewhere.
        found, waiting = {directory}, [directory]
        while waiting:
            number = waiting.pop()
            new = {move.came.directory for move in self._moves if move.went.directory == number} - found
            found |= new
            waiting += new
        return found

    def _forget_moves(self, synced: set[int]) -> None:
        """What is durable needs no partner, and the indexes belong to other changes from now on."""
        self._moves = [
            move for move in self._moves if not {move.came.directory, move.went.directory} & synced
        ]

    @property
    def next_number(self) -> int:
        """What the next file or directory will be called."""
        return self._next

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

    def place_of(self, parts: tuple[str, ...]) -> tuple[int, str]:
        """The directory and the name that a path ends with."""
        return self.directory_at(parts[:-1], "/".join(parts)), parts[-1]

    def node_at(self, parts: tuple[str, ...]) -> int:
        """The number of the file or directory that has that path now."""
        if not parts:
            return ROOT
        directory, name = self.place_of(parts)
        found = self.directories[directory].seen.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "/".join(parts))
        return found

    def used(self) -> int:
        """Bytes that the named files occupy. A removed file is not counted, even while it is open."""
        return sum(self.files[number].allocated for _, number in self._seen() if number in self.files)

    def seen(self) -> Iterator[tuple[str, int]]:
        """Every path with its node, directories before what is in them."""
        return self._seen()

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
        """The disk when the power is back: both layers are what survived."""
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
                left = left.without(placed)  # a directory has one place, and none is below itself
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
