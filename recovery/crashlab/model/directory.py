"""Directories of a simulated disk.

An operation first checks what a real system checks. A name that exists already or is missing is a mistake of
the program: such an operation gets no number and is not part of the trace.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from recovery.crashlab.model.handles import (
    SimulatedLock,
    SimulatedReadFile,
    SimulatedWriteFile,
    system_error,
    write_back_pending,
)
from recovery.crashlab.model.names import NameChange
from recovery.crashlab.model.operations import Verb
from storage.disk.files import DiskSpace
from storage.errors import StoreLocked

if TYPE_CHECKING:
    from recovery.crashlab.model.disk_errors import Extent
    from recovery.crashlab.model.machine import SimulatedMachine
    from recovery.crashlab.model.platter import Platter
    from storage.disk.files import Directory, Lock, ReadFile, WriteFile


_UNLIMITED = 1 << 60
"""The space of a disk without a limit."""


class SimulatedDirectory:
    """A directory of a simulated disk. Each operation looks it up by its path, as a real system does."""

    def __init__(self, machine: SimulatedMachine, parts: tuple[str, ...]) -> None:
        self._machine = machine
        self._boot = machine.boot
        self._parts = parts

    @property
    def path(self) -> str:
        return "/" + "/".join(self._parts)

    def _at(self, name: str) -> str:
        return "/" + "/".join((*self._parts, name))

    def _platter(self) -> Platter:
        self._machine.check(self._boot)
        return self._machine.platter

    def _names(self) -> tuple[Platter, int, dict[str, int]]:
        platter = self._platter()
        number = platter.directory_at(self._parts, self.path)
        return platter, number, platter.directories[number].seen

    def names(self) -> list[str]:
        _, _, seen = self._names()
        self._machine.look(Verb.NAMES, self.path)
        return sorted(seen)

    def directory(self, name: str) -> Directory:
        self._machine.check(self._boot)
        return SimulatedDirectory(self._machine, (*self._parts, name))

    def make(self) -> None:
        platter = self._platter()
        if not self._parts:
            return
        parent = platter.directory_at(self._parts[:-1], self.path)
        name = self._parts[-1]
        taken = platter.directories[parent].seen.get(name)
        if taken in platter.directories:
            return
        if taken is not None:
            raise system_error(errno.EEXIST, self.path)
        operation = self._machine.attempt(Verb.MAKE, self.path, platter.next_number)
        self._machine.perform(operation, lambda _: platter.add_directory(parent, name))

    def open(self, name: str) -> ReadFile:
        platter, _, seen = self._names()
        file = _file(platter, seen, name, self._at(name))
        self._machine.look(Verb.OPEN, self._at(name))
        return SimulatedReadFile(self._machine, file, self._at(name))

    def create(self, name: str) -> WriteFile:
        platter, number, seen = self._names()
        if name in seen:
            raise system_error(errno.EEXIST, self._at(name))
        operation = self._machine.attempt(Verb.CREATE, self._at(name), platter.next_number)
        self._machine.perform(operation, lambda _: platter.add_file(number, name))
        return SimulatedWriteFile(self._machine, platter.directories[number].seen[name], self._at(name))

    def rename(self, old: str, new: str) -> None:
        platter, number, seen = self._names()
        if old not in seen:
            raise system_error(errno.ENOENT, self._at(old))
        _check_replaceable(platter, seen[old], seen.get(new), self._at(new))
        if old == new:
            return
        change = NameChange(seen[old], old=old, new=new)
        operation = self._machine.attempt(Verb.RENAME, self._at(old), target=self._at(new))
        self._machine.perform(operation, lambda _: platter.directory_to_change(number).change(change))

    def remove(self, name: str) -> None:
        platter, number, seen = self._names()
        change = NameChange(_file(platter, seen, name, self._at(name)), old=name)
        operation = self._machine.attempt(Verb.REMOVE, self._at(name))
        self._machine.perform(operation, lambda _: platter.directory_to_change(number).change(change))

    def sync(self) -> None:
        platter, number, _ = self._names()

        def sync(extent: Extent) -> None:
            write_back_pending(platter.directory_to_change(number), extent)

        self._machine.perform(self._machine.attempt(Verb.SYNC_DIRECTORY, self.path, number), sync)

    def space(self) -> DiskSpace:
        self._machine.check(self._boot)
        room = self._machine.room()
        if room is None:
            return DiskSpace(_UNLIMITED, _UNLIMITED)
        return DiskSpace(room, self._machine.capacity or 0)

    def lock(self, name: str) -> Lock:
        platter, number, seen = self._names()
        if seen.get(name) in self._machine.locked:
            raise StoreLocked(self._at(name), None)

        def take(_: Extent) -> None:
            if name not in seen:
                platter.add_file(number, name)
            self._machine.locked.add(platter.directories[number].seen[name])

        node = seen.get(name, platter.next_number)
        self._machine.perform(self._machine.attempt(Verb.LOCK, self._at(name), node), take)
        return SimulatedLock(self._machine, platter.directories[number].seen[name], self._at(name))


def _file(platter: Platter, seen: dict[str, int], name: str, path: str) -> int:
    if name not in seen:
        raise system_error(errno.ENOENT, path)
    if seen[name] not in platter.files:
        raise system_error(errno.EISDIR, path)
    return seen[name]


def _check_replaceable(platter: Platter, moved: int, replaced: int | None, path: str) -> None:
    if replaced is None or moved == replaced:
        return
    if replaced in platter.directories:
        if moved in platter.files:
            raise system_error(errno.EISDIR, path)
        if platter.directories[replaced].seen:
            raise system_error(errno.ENOTEMPTY, path)
    elif moved in platter.directories:
        raise system_error(errno.ENOTDIR, path)
