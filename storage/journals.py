"""The journals of a running store: the one that groups are written to, the next one, and the old ones."""

from __future__ import annotations

import errno
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage import filenames
from storage.errors import DiskFull
from storage.filenames import FileKind
from storage.journal_writer import NOTHING, JournalDraft, JournalWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from storage.files import Directory
    from storage.journal_writer import Group
    from storage.position import JournalPosition

FILL_STEP = 1 << 20
_FIRST_SHARE = 16
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, slots=True)
class JournalShape:
    """How journals are laid out: where groups begin, and how far a file is filled before it has a name."""

    alignment: int
    size: int


class Journals:
    """Rolls from one journal to the next.

    Groups are written by whoever leads a turn; the next draft is filled by a worker meanwhile. The lock is
    for the draft alone. Each journal is announced when it has its name: see `storage.lastmark`.
    """

    def __init__(
        self,
        directory: Directory,
        shape: JournalShape,
        newest_id: int,
        new_salt: Callable[[], int],
        lock: AbstractContextManager[object],
        announcing: Callable[[int], AbstractContextManager[None]],
        durable_up_to: JournalPosition,
    ) -> None:
        self.active: JournalWriter | None = None
        self.durable_up_to = durable_up_to
        """Everything in the journals before this is known to be durable."""
        self.groups = 0
        """How many groups this process has made durable."""
        self._directory = directory
        self._shape = shape
        self._newest_id = newest_id
        self._new_salt = new_salt
        self._lock = lock
        self._announcing = announcing
        self._draft: JournalDraft | None = None
        # How far a draft is filled before it is used. A writer faster than the filling would roll at every
        # other group if it took what there is: so each journal is twice as large as the one before.
        self._ample = shape.size // _FIRST_SHARE

    def sync(self) -> None:
        """Returns when the group that was written last is durable, and so all before it."""
        assert self.active is not None, "a group was written"
        self.durable_up_to = self.active.sync()
        self.groups += 1

    def pass_by(self, position: JournalPosition) -> None:
        """What stands before is about to be in the entry logs, all of it, whoever wrote it."""
        self.durable_up_to = max(self.durable_up_to, position)

    def with_room(self, group: Group, more: int = 0) -> JournalWriter:
        """The journal that takes the group and `more` bytes next, a new one if the active one is full.

        `DiskFull` when there is no space for one; then nothing has changed. Any other `OSError` leaves it
        unknown which names are durable.
        """
        if self.active is not None and self.active.has_room(group, more):
            return self.active
        return self.roll(group.space(self._shape.alignment, more))

    def roll(self, room: int) -> JournalWriter:
        """A new journal with so much room, however much the active one has. Raises as `with_room`."""
        with self._lock:
            draft = self._filled_draft(room)
            self._publish(draft)
        self._ample = min(2 * self._ample, self._shape.size)
        return self._take_over(draft.writer())

    def _take_over(self, writer: JournalWriter) -> JournalWriter:
        if self.active is not None:
            self.active.close()
        self.active = writer
        return writer

    def carry_over(self, group: Group) -> JournalWriter:
        """A new journal that begins with what opening has to write again; all of it is durable.

        The group is durable before the journal has a name: a crash leaves all of it or nothing.
        """
        assert self.active is None, "a store is opened once"
        draft = self._filled_draft(group.space(self._shape.alignment) + NOTHING.space(self._shape.alignment))
        writer = draft.writer()
        writer.write(group, self.durable_up_to)
        end = writer.sync()
        self._publish(draft)
        # Behind the name: a seal in a journal whose name could not be made durable would be believed by the
        # next opening, and a power cut would then take away what it has vouched for.
        writer.write(NOTHING, end)
        self.durable_up_to = writer.sync()
        self.active = writer
        return writer

    def _publish(self, draft: JournalDraft) -> None:
        """The draft has its name and is announced, both durably.

        All groups of the old journal are durable by then: none is written before the one before it is.
        """
        with ExitStack() as announced:
            try:
                announced.enter_context(self._announcing(draft.journal_id))
            except OSError as error:
                self._give_up_draft()
                if error.errno in _NO_SPACE:
                    raise DiskFull(self._directory.path) from error
                raise
            self._draft = None
            draft.publish()

    def _filled_draft(self, room: int) -> JournalDraft:
        """A draft with that much room. Tried twice: an error costs a draft, and nothing in a journal."""
        try:
            return self._fill_draft(room)
        except OSError as error:
            self._give_up_draft()
            if error.errno in _NO_SPACE:
                raise DiskFull(self._directory.path) from error
        try:
            return self._fill_draft(room)
        except OSError:
            self._give_up_draft()
            raise

    def _fill_draft(self, room: int) -> JournalDraft:
        if self._draft is None:
            self._draft = self.new_draft()
        missing = max(room, self._ample) - self._draft.room
        if missing > 0:
            self._draft.fill(missing)
        return self._draft

    def new_draft(self) -> JournalDraft:
        """A draft with the next id."""
        draft = JournalDraft(self._directory, self._newest_id + 1, self._new_salt(), self._shape.alignment)
        self._newest_id += 1
        return draft

    def _give_up_draft(self) -> None:
        # What a failed fill has left is unknown: the next attempt begins with a new file. The zeros that were
        # written may be the very space that is missing.
        draft, self._draft = self._draft, None
        self._ample = self._shape.size // _FIRST_SHARE
        if draft is not None:
            with suppress(OSError):
                self._discard(draft)

    def fill_ahead(self) -> bool:
        """Fills one step of the next journal, so that a roll need not wait; whether there is more to do."""
        with self._lock:
            if self.active is None or not self.active.is_half_full:
                return False
            try:
                if self._draft is None:
                    self._draft = self.new_draft()
                missing = self._shape.size - self._draft.filled_until
                if missing > 0:
                    self._draft.fill(min(FILL_STEP, missing))
            except OSError:
                # Nobody waits for it: the leader that needs the room tries again, and hears of it.
                self._give_up_draft()
                return False
            return missing > FILL_STEP

    def discard_draft(self) -> None:
        """Removes the draft that nobody will use; an opening would do it as well."""
        with self._lock:
            self._give_up_draft()

    def close(self) -> None:
        """Closes the files; writes nothing."""
        if self.active is not None:
            self.active.close()
        if self._draft is not None:
            self._draft.abandon()

    def _discard(self, draft: JournalDraft) -> None:
        draft.abandon()
        self._directory.remove(filenames.draft(filenames.journal(draft.journal_id)))


def journal_ids(directory: Directory) -> list[int]:
    """The ids of the journals that have a name here, ascending."""
    names = map(filenames.parse, directory.names())
    return sorted(name.number for name in names if name.kind is FileKind.JOURNAL and name.number is not None)


def trim(directory: Directory, marked_id: int, backups: int) -> list[str]:
    """Removes the journals before the marked one, but for the newest so many; returns their names.

    A power cut may bring one back: it lies before the mark, and is removed again.
    """
    before = [journal_id for journal_id in journal_ids(directory) if journal_id < marked_id]
    names = [filenames.journal(journal_id) for journal_id in before[: max(0, len(before) - backups)]]
    for name in names:
        directory.remove(name)
    return names
