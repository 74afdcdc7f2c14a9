"""The names of one directory in two layers: those that reads see, and those that survive a power cut.

A change of a name survives or is lost as a whole, independently of other changes, because the port promises
no order among unsynced changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from recovery.crashlab.model.disk_errors import Pages


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change from one name to another. A creation has no old name, a removal no new one."""

    node: int
    old: str | None = None
    new: str | None = None
    number: int = field(default=0, compare=False)
    """Its position among all changes of names on the disk, for systems that keep them in order."""

    def apply(self, names: dict[str, int]) -> None:
        # Search by node instead of the old name. If an earlier change was lost, the old name may belong to
        # another file, which must stay, and this file may still have an even older name, which must go. No
        # file has two names.
        for name in [name for name, node in names.items() if node == self.node]:
            del names[name]
        if self.new is not None:
            names[self.new] = self.node

    def __str__(self) -> str:
        match self.old, self.new:
            case None, new:
                return f"create {new}"
            case old, None:
                return f"remove {old}"
            case old, new:
                return f"rename {old} to {new}"


class LinkChange(NameChange):
    """The same change for a file with several names: other names of the file stay."""

    def apply(self, names: dict[str, int]) -> None:
        if self.old is not None and names.get(self.old) == self.node:
            del names[self.old]
        if self.new is not None:
            names[self.new] = self.node


class Names:
    """The names in one directory: those that reads see, and those that are durable."""

    __slots__ = ("_durable", "_forgot", "changes", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.changes: list[NameChange] = []  # since the last sync, in order
        self._durable: dict[str, int] = {}
        self._forgot = False

    def copy(self) -> Names:
        """Return an independent copy of both layers."""
        twin = Names()
        twin.seen, twin.changes = dict(self.seen), self.changes.copy()
        twin._durable, twin._forgot = dict(self._durable), self._forgot
        return twin

    def change(self, change: NameChange) -> None:
        """Apply a change. Reads see it at once, and it is durable after the next sync."""
        change.apply(self.seen)
        self.changes.append(change)

    def sync(self) -> None:
        """Make the pending changes durable."""
        for change in self.changes:
            change.apply(self._durable)
        self.changes = []

    def fail_sync(
        self,
        seed: int,
        pages: Pages,  # noqa: ARG002 - names are not read in pages
        kept: Container[int] = (),
    ) -> None:
        """Write back some of the changes, including the indexes in `kept`, and mark all of them clean.

        No later sync writes the rest.
        """
        choose = Random(seed)
        drawn = [choose.random() < 0.5 for _ in self.changes]
        self.changes = [change for at, change in enumerate(self.changes) if drawn[at] or at in kept]
        self.sync()
        self._forgot = True

    @property
    def settled(self) -> bool:
        """Return whether both layers are equal, so that a power cut changes nothing."""
        return not (self.changes or self._forgot)

    def after_cut(self, survivors: Container[int]) -> Names:
        """Return the names after a power cut. `survivors` contains the indexes of changes that survive."""
        after = Names()
        after._durable = dict(self._durable)
        for index, change in enumerate(self.changes):
            if index in survivors:
                change.apply(after._durable)
        after.seen = dict(after._durable)
        return after

    def without(self, nodes: set[int]) -> Names:
        """Return these settled names without those that lead to one of the nodes."""
        if nodes.isdisjoint(self.seen.values()):
            return self
        left = Names()
        left.seen = {name: node for name, node in self.seen.items() if node not in nodes}
        left._durable = dict(left.seen)
        return left

    def nodes(self) -> set[int]:
        """Return every file or directory that has a name here, had one, or may get it back."""
        return {*self.seen.values(), *self._durable.values(), *(change.node for change in self.changes)}
