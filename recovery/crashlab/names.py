"""One directory's names in two layers: those that are seen, and those that survive.

A change of names lives or dies as a whole, and without regard to its neighbours: the port promises no
order among changes that were not synced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from recovery.crashlab.faults import Pages


@dataclass(frozen=True, slots=True)
class NameChange:
    """One step from a name to another; a creation has no old name, a removal no new one."""

    node: int
    old: str | None = None
    new: str | None = None
    number: int = field(default=0, compare=False)
    """Its place among all changes of names on the disk, for systems that keep their order."""

    def apply(self, names: dict[str, int]) -> None:
        # By node, not by the old name: where an earlier change was lost, the old name may belong to another
        # file, which stays, and this one may still go by an older name, which goes. No file has two names.
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
    """The same of a file that may have several names: each lives for itself."""

    def apply(self, names: dict[str, int]) -> None:
        if self.old is not None and names.get(self.old) == self.node:
            del names[self.old]
        if self.new is not None:
            names[self.new] = self.node


class Names:
    """The names in one directory, as they are seen and as they are durable."""

    __slots__ = ("_durable", "_forgot", "changes", "seen")

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.changes: list[NameChange] = []  # since the last sync, as they were made
        self._durable: dict[str, int] = {}
        self._forgot = False

    def copy(self) -> Names:
        """The same two layers, to be changed apart."""
        twin = Names()
        twin.seen, twin.changes = dict(self.seen), self.changes.copy()
        twin._durable, twin._forgot = dict(self._durable), self._forgot
        return twin

    def change(self, change: NameChange) -> None:
        """Makes a change that is seen at once, and waits for a sync."""
        change.apply(self.seen)
        self.changes.append(change)

    def sync(self) -> None:
        """Writes back the changes that wait."""
        for change in self.changes:
            change.apply(self._durable)
        self.changes = []

    def fail_sync(
        self,
        seed: int,
        pages: Pages,  # noqa: ARG002 - names are not read in pages
        kept: Container[int] = (),
    ) -> None:
        """Writes back some of the changes, those that are `kept` among them, and calls all of them clean.

        No later sync writes the rest.
        """
        choose = Random(seed)
        drawn = [choose.random() < 0.5 for _ in self.changes]
        self.changes = [change for at, change in enumerate(self.changes) if drawn[at] or at in kept]
        self.sync()
        self._forgot = True

    @property
    def settled(self) -> bool:
        """Whether both layers agree, so that a cut changes nothing."""
        return not (self.changes or self._forgot)

    def after_cut(self, survivors: Container[int]) -> Names:
        """The names that are there when the power is back; `survivors` are indexes of changes."""
        after = Names()
        after._durable = dict(self._durable)
        for index, change in enumerate(self.changes):
            if index in survivors:
                change.apply(after._durable)
        after.seen = dict(after._durable)
        return after

    def without(self, nodes: set[int]) -> Names:
        """These names, where both layers agree, but none that leads to one of those nodes."""
        if nodes.isdisjoint(self.seen.values()):
            return self
        left = Names()
        left.seen = {name: node for name, node in self.seen.items() if node not in nodes}
        left._durable = dict(left.seen)
        return left

    def nodes(self) -> set[int]:
        """Every file or directory that has, had or may again have a name here."""
        return {*self.seen.values(), *self._durable.values(), *(change.node for change in self.changes)}
