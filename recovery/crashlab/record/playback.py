"""Plays a tape onto a platter, to know what was durable at each moment and what was not.

What the model cannot follow is remembered as *uncovered*, by path: a file that is written through a shared
mapping, a file that came from outside, a call that is not modelled. States of such files prove nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from recovery.crashlab.model.disk_errors import Pages
from recovery.crashlab.model.platter import ROOT, Platter
from recovery.crashlab.record.tape import NOT_MODELLED, Call, Flag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from recovery.crashlab.model.profile import Profile
    from recovery.crashlab.model.real_tree import IgnoredPaths
    from recovery.crashlab.record.tape import Event

_PUNCH_OR_ZERO = 0x02 | 0x10
_COLLAPSE_OR_INSERT = 0x08 | 0x20
_KEEP_SIZE = 0x01


class Playback:
    """Plays events one after the other onto its own platter."""

    def __init__(
        self,
        profile: Profile,
        ignored: IgnoredPaths,
        platter: Platter | None = None,
        nodes: Mapping[int, int] | None = None,
    ) -> None:
        self.platter = Platter(profile.sector_size) if platter is None else platter
        self.uncovered: dict[str, str] = {}
        """Paths, and why their states prove nothing."""
        self._profile = profile
        self._ignored = ignored
        self._nodes = dict(nodes or {})
        self._waiting: deque[Callable[[], None]] = deque()  # syncs that a lying disk has not done yet

    def moments(self, events: Sequence[Event]) -> Iterator[tuple[int, Event | None]]:
        """Play all events, and stop before each sync and at the end.

        Other moments are not needed: what a crash between two syncs leaves, a crash just before the second
        can leave too. Yield the index of the event, and the event; the platter is in the state before it.
        """
        for index, event in enumerate(events):
            if event.call is Call.WRITE and event.flags & Flag.DURABLE and not event.error:
                self.play(event)  # a crash in the middle: written, but not yet durable
                yield index, event
                self._settle(event)
            elif event.is_sync and event.path not in self._ignored:
                yield index, event
                self.play(event)
            else:
                self.play(event)
        yield len(events), None

    def play(self, event: Event) -> None:
        """Apply the event to what reads see, and, if it is a sync, to what is durable."""
        if event.call is Call.MARK:
            return
        if event.path in self._ignored:
            self._leave_alone(event)
            return
        if event.call in NOT_MODELLED and not event.error:
            self.uncovered[event.path] = f"{event.call.name.lower()}, whose effects the recorder does not see"
        elif event.is_sync and event.call is not Call.WRITE:
            self._sync(event)
        elif not event.error:
            try:
                self._change(event)
            except (KeyError, OSError, IndexError):
                self.uncovered[event.path] = f"the recorder has not seen where it comes from ({event})"

    def play_all(self, events: Iterable[Event]) -> None:
        """Play all events, including the sync that is part of a durable write."""
        for event in events:
            self.play(event)
            if event.call is Call.WRITE and event.flags & Flag.DURABLE and not event.error:
                self._settle(event)

    def _leave_alone(self, event: Event) -> None:
        if event.target and event.target not in self._ignored and not event.error:
            self.uncovered[event.target] = f"it comes from a file that does not matter ({event})"

    # ── changes ───────────────────────────────────────────────────────────────────────────────────────

    def _change(self, event: Event) -> None:
        match event.call:
            case Call.CREATE:
                directory, name = self.platter.place_of(_parts(event.path))
                self._nodes[event.inode] = self.platter.add_file(directory, name)
            case Call.MKDIR:
                directory, name = self.platter.place_of(_parts(event.path))
                self._nodes[event.inode] = self.platter.add_directory(directory, name)
            case Call.WRITE:
                self.platter.file_to_change(self._file(event)).write(event.offset, event.data)
            case Call.TRUNCATE:
                self.platter.file_to_change(self._file(event)).truncate(event.length)
            case Call.ALLOCATE:
                self._allocate(event)
            case Call.RENAME:
                self._rename(event)
            case Call.LINK if event.target not in self._ignored:
                node = self.platter.node_at(_parts(event.path))
                self.platter.link(node, *self.platter.place_of(_parts(event.target)))
            case Call.UNLINK | Call.RMDIR:
                directory, name = self.platter.place_of(_parts(event.path))
                node = self.platter.node_at(_parts(event.path))
                self.platter.change_name(directory, node, old=name)
            case _:
                pass

    def _file(self, event: Event) -> int:
        node = self._nodes.get(event.inode) if event.inode else self.platter.node_at(_parts(event.path))
        if node is None or node not in self.platter.files:
            raise KeyError(event.path)
        return node

    def _allocate(self, event: Event) -> None:
        content = self.platter.file_to_change(self._file(event))
        mode, end = event.flags >> 8, event.offset + event.length
        if mode & _COLLAPSE_OR_INSERT:
            self.uncovered[event.path] = f"what the call moves is not modelled ({event})"
            return
        if mode & _PUNCH_OR_ZERO:
            covered = max(0, min(end, content.size) - event.offset)
            content.write(event.offset, bytes(covered))
        if not mode & _KEEP_SIZE and end > content.size:
            content.truncate(end)

    def _rename(self, event: Event) -> None:
        if "?" in {event.path, event.target}:
            self.uncovered[event.path] = f"it crossed the border of the root ({event})"
            return
        source = self.platter.place_of(_parts(event.path))
        node = self.platter.node_at(_parts(event.path))
        if event.target in self._ignored:
            self.platter.change_name(source[0], node, old=source[1])
            return
        target = self.platter.place_of(_parts(event.target))
        replaced = self.platter.directories[target[0]].seen.get(target[1])
        if replaced == node:
            return
        if source[0] == target[0]:
            self.platter.change_name(source[0], node, old=source[1], new=target[1])
        else:
            self.platter.move(node, source, target)

    # ── syncs ─────────────────────────────────────────────────────────────────────────────────────────

    def _sync(self, event: Event) -> None:
        if event.call is Call.SYNC_ALL and event.error:
            for node in (*self.platter.files, *self.platter.directories):
                self._fail_sync(event, node)
        elif event.call is Call.SYNC_ALL:
            self._soon(self._sync_all)
        elif event.flags & Flag.DIRECTORY:
            self._sync_node(event, self._nodes.get(event.inode, ROOT if event.path == "." else None))
        else:
            self._sync_node(event, self._nodes.get(event.inode))

    def _sync_node(self, event: Event, node: int | None) -> None:
        if node is None:
            return  # no change of it was recorded
        if event.error:
            self._fail_sync(event, node)
            return
        self._soon(lambda: self._write_back(node))

    def _fail_sync(self, event: Event, node: int) -> None:
        """Apply a failed sync, which writes at most a part of the pending data but marks all of it clean."""
        if node in self.platter.files:
            self.platter.file_to_change(node).fail_sync(event.number, Pages.KEPT)
        else:
            self.platter.fail_names(node, event.number, Pages.KEPT)

    def _write_back(self, node: int) -> None:
        if node in self.platter.files:
            self.platter.file_to_change(node).sync()
        else:
            self.platter.sync_names(node)
        if self._profile.orders_names:
            self._sync_all_names()

    def _sync_all_names(self) -> None:
        for number, names in list(self.platter.directories.items()):
            if names.changes:
                self.platter.sync_names(number)

    def _sync_all(self) -> None:
        for number in list(self.platter.files):
            self.platter.file_to_change(number).sync()
        self._sync_all_names()

    def _settle(self, event: Event) -> None:
        node = self._nodes.get(event.inode)
        if node in self.platter.files:
            self._soon(lambda: self.platter.file_to_change(node).sync_range(event.offset, event.length))

    def _soon(self, sync: Callable[[], None]) -> None:
        self._waiting.append(sync)
        while len(self._waiting) > self._profile.ignored_syncs:
            self._waiting.popleft()()


def _parts(path: str) -> tuple[str, ...]:
    return () if path in {"", "."} else tuple(path.split("/"))
