"""The journals of a running store: the active one, which is written, the next one, and the old ones."""

from __future__ import annotations

import errno
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.disk.replace import remove_draft
from storage.errors import NO_SPACE, DiskFull
from storage.journal.seal import metadata_tag
from storage.journal.writer import NOTHING, JournalDraft, JournalWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from storage.disk.files import Directory
    from storage.entry.position import JournalPosition
    from storage.journal.writer import Group

FILL_STEP = 1 << 20
_FIRST_SHARE = 16
_ENDS_MAX = 64


@dataclass(frozen=True, slots=True)
class JournalShape:
    """The layout of journals: their alignment, and how far a file is filled before it has a name."""

    alignment: int
    size: int


class Journals:
    """Rolls from one journal to the next.

    Groups are written by the leader of a commit. Meanwhile a worker prepares the next journal: it fills a
    draft, gives it its name and announces it (see `storage.checkpoint.mark`), so that a roll syncs nothing.
    If the leader needs the journal before the worker is done, the leader does the rest itself.

    The leader is the thread that leads a commit, and an opening before there are other threads.
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
        # field                                  written by              under     read by
        self.active: JournalWriter | None = None  #  the leader            no lock   any thread
        self.durable_up_to = durable_up_to  #        the leader            no lock   any thread
        """Everything in the journals before this is known to be durable."""
        self.read_up_to = durable_up_to  #          the opening           -         the leader
        """The end of what the opening has read, proven durable or not. Another opening may read it again, so
        that a delete covers it too."""
        self._metadata_tag = 0  #                    the leader            no lock   the leader
        """The tag of the metadata log for the seals. Written before the group of the commit."""
        self.groups = 0  #                           the leader            no lock   any thread
        """How many groups this process has made durable."""
        self.seals = 0  #                            the leader            no lock   any thread
        """How many of them were empty groups, which only prove that the group before was durable."""
        self._ends: dict[int, int] = {}  #           the leader            no lock   any thread
        """Where the content ends of the last few journals that are no longer written to; their files are
        longer."""
        self._written_before = 0  #                  the leader            no lock   any thread
        """Bytes in the journals before the active one that this process has written."""
        self._directory = directory
        self._shape = shape
        self._newest_id = newest_id  #               leader, worker        the lock  leader, worker
        self._new_salt = new_salt
        self._lock = lock
        self._announcing = announcing
        self._draft: JournalDraft | None = None  #   leader, worker        the lock  leader, worker
        self._prepared: JournalWriter | None = None  # leader, worker      the lock  leader, worker, figures
        """The next journal, once it has its name and is announced; it has no group yet."""
        self._publish_error: OSError | None = None  # leader, worker         the lock  leader
        """After this error it is unknown which names are durable, and no journal is begun any more."""
        # How far a draft is filled before it is used. It doubles with each journal, because otherwise a
        # writer that is faster than the filling would roll at every other group.
        self._ample = shape.size // _FIRST_SHARE  #  leader, worker        the lock  leader, worker

    def sync(self) -> None:
        """Make the group that was written last durable, and so all groups before it."""
        assert self.active is not None, "a group was written"
        self.durable_up_to = self.active.sync()
        self.groups += 1

    def state_metadata_sequence(self, metadata_sequence: int) -> None:
        """Let every later seal say that this group of the metadata log is durable.

        Otherwise an opening could not tell a metadata log that has lost its last groups from one that never
        had them, and a deleted ledger would be back.
        """
        self._metadata_tag = metadata_tag(metadata_sequence)
        if self.active is not None:
            self.active.metadata_tag = self._metadata_tag

    def note_durable(self, position: JournalPosition) -> None:
        """Note that everything before the position is about to be in the entry logs."""
        self.durable_up_to = max(self.durable_up_to, position)

    def note_read(self, position: JournalPosition) -> None:
        """Note that the opening has read everything before the position."""
        self.read_up_to = max(self.read_up_to, position)

    def with_room(self, group: Group, more: int = 0) -> JournalWriter:
        """Return the journal that takes the group and `more` bytes next, a new one if the active one is full.

        `DiskFull` if there is no space for one; then nothing has changed. After any other `OSError` it is
        unknown which names are durable.
        """
        if self.active is not None and self.active.has_room(group, more):
            return self.active
        return self.roll(group.space(self._shape.alignment, more))

    def roll(self, room: int) -> JournalWriter:
        """Begin a new journal with so much room, even if the active one has room. Raises as `with_room`."""
        with self._lock:
            if self._publish_error is not None:
                # The thread that waited for the lock would fill a draft that may have its name.
                raise OSError(errno.EIO, "the names of journals are unknown") from self._publish_error
            writer, self._prepared = self._prepared, None
            if writer is not None and writer.room < room:
                # A journal never grows once it has its name, so this one stays without a group and is void.
                self.note_ends({writer.journal_id: 0})
                writer.close()
                writer = None
            if writer is None:
                draft = self._filled_draft(room)
                self._publish(draft)
                writer = draft.writer()
            self._ample = min(2 * self._ample, self._shape.size)
        return self._take_over(writer)

    def _take_over(self, writer: JournalWriter) -> JournalWriter:
        if self.active is not None:
            self._written_before += self.active.end
            self.note_ends({self.active.journal_id: self.active.end})
            self.active.close()
        writer.metadata_tag = self._metadata_tag
        self.active = writer
        return writer

    def carry_over(self, group: Group) -> JournalWriter:
        """Begin a new journal with the records that an opening has to write again; all of it is durable.

        The group is durable before the journal has a name, so that a crash leaves all of it or nothing.
        """
        assert self.active is None, "a store is opened once"
        room = group.space(self._shape.alignment) + NOTHING.space(self._shape.alignment)
        try:
            draft = self._filled_draft(room)
        except DiskFull:
            # A smaller journal does for an opening; the next roll makes one of the usual size.
            self._ample = 0
            draft = self._filled_draft(room)
            self._ample = self._shape.size // _FIRST_SHARE
        writer = draft.writer()
        writer.metadata_tag = self._metadata_tag
        writer.write(group, self.durable_up_to)
        end = writer.sync()
        self._publish(draft)
        self.active = writer  # before the seal, so that `close` closes its file after an error
        # The seal comes after the name. A seal in a journal whose name could not be made durable would be
        # believed by the next opening, and a power cut could then take away what it proves.
        writer.write(NOTHING, end)
        self.durable_up_to = writer.sync()
        return writer

    def _publish(self, draft: JournalDraft) -> None:
        """Give the draft its name and announce it, both durably.

        Groups may still be written to the journal before it, which its header names.
        """
        try:
            with ExitStack() as announced:
                try:
                    announced.enter_context(self._announcing(draft.journal_id))
                except OSError as error:
                    self._give_up_draft()
                    if error.errno in NO_SPACE:
                        raise DiskFull(self._directory.path) from error
                    raise
                draft.publish()
        except OSError as error:
            if not isinstance(error, DiskFull):
                self._publish_error = error
            raise
        # Only now, so that `close` closes its file after an error, which stops the store.
        self._draft = None

    def _filled_draft(self, room: int) -> JournalDraft:
        """Return a draft with that much room. Tried twice, because an error costs only a draft."""
        try:
            return self._fill_draft(room)
        except OSError as error:
            self._give_up_draft()
            if error.errno in NO_SPACE:
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
        """Create a draft with the next id."""
        # Groups that no seal proves yet are in that journal. Until this one has a seal of its own, its header
        # states that the other one must exist.
        follows = self.durable_up_to.journal_id
        draft = JournalDraft(
            self._directory, self._newest_id + 1, self._new_salt(), self._shape.alignment, follows
        )
        self._newest_id += 1
        return draft

    def _give_up_draft(self) -> None:
        # The next attempt begins with a new file, because the content after a failed fill is unknown. The
        # zeros that were written may be the very space that is missing.
        draft, self._draft = self._draft, None
        self._ample = self._shape.size // _FIRST_SHARE
        if draft is not None:
            with suppress(OSError):
                self._discard(draft)

    # ── figures ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def bytes_written(self) -> int:
        """Return the bytes that this process has written to journals, from each header to the last seal."""
        return self._written_before + (0 if self.active is None else self.active.end)

    def note_ends(self, ends: Mapping[int, int]) -> None:
        """Note where the content of journals ends that are no longer written to."""
        self._ends |= ends
        while len(self._ends) > _ENDS_MAX:
            del self._ends[min(self._ends)]

    def sizes(self) -> dict[int, int]:
        """Return the size of each journal's file by its id.

        A journal that is removed meanwhile may be missing.
        """
        sizes = {}
        for journal_id in journal_ids(self._directory):
            with suppress(FileNotFoundError), self._directory.open(filenames.journal(journal_id)) as file:
                sizes[journal_id] = file.size()
        return sizes

    def bytes_after(self, mark: JournalPosition) -> int:
        """Count the bytes of journals from the mark on; of those before the last 64 the whole file counts."""
        total, ends = 0, {**self._ends, self.durable_up_to.journal_id: self.durable_up_to.offset}
        if (prepared := self._prepared) is not None:
            ends[prepared.journal_id] = 0
        for journal_id, size in self.sizes().items():
            if journal_id >= mark.journal_id:
                start = mark.offset if journal_id == mark.journal_id else 0
                total += max(0, ends.get(journal_id, size) - start)
        return total

    # ── the next journal ─────────────────────────────────────────────────────────────────────────────

    def prepare(self) -> bool:
        """Do one step of preparing the next journal, so that a roll need not wait. Return whether to go on.

        If filling fails, or the disk is full, the draft is given up. After any other `OSError` it is unknown
        which names are durable.
        """
        with self._lock:
            if self._prepared is not None or self.active is None or not self.active.is_half_full:
                return False
            if self._publish_error is not None:
                return False  # the draft may have its name, and would be filled under it
            try:
                if self._draft is None:
                    self._draft = self.new_draft()
                missing = self._shape.size - self._draft.filled_until
                if missing > 0:
                    self._draft.fill(min(FILL_STEP, missing))
                    return True
            except OSError:
                # No add waits for the draft. The leader that needs the room tries again and gets the error.
                self._give_up_draft()
                return False
            draft = self._draft
            with suppress(DiskFull):  # because the leader that needs the room tries again and gets the error
                self._publish(draft)
                self._prepared = draft.writer()
            return False

    def discard_next(self) -> None:
        """Remove the draft and the prepared journal, at the end of a run in which nothing has failed.

        After a crash an opening removes the draft; the prepared journal is void, and a later trim removes it.
        """
        with self._lock:
            self._give_up_draft()
            prepared, self._prepared = self._prepared, None
            if prepared is None or self.active is None:
                return
            prepared.close()
            with suppress(OSError):  # then the prepared journal stays
                # The mark comes first, because an announced journal that is missing is reported as lost.
                with self._announcing(self.active.journal_id):
                    pass
                self._directory.remove(filenames.journal(prepared.journal_id))

    def close(self) -> None:
        """Close the files. Writes nothing."""
        if self.active is not None:
            self.active.close()
        if self._prepared is not None:
            self._prepared.close()
        if self._draft is not None:
            self._draft.abandon()

    def _discard(self, draft: JournalDraft) -> None:
        draft.abandon()
        remove_draft(self._directory, filenames.journal(draft.journal_id))


def journal_ids(directory: Directory) -> list[int]:
    """Return the ids of the journals that have a name here, ascending."""
    names = map(filenames.parse, directory.names())
    return sorted(name.number for name in names if name.kind is FileKind.JOURNAL and name.number is not None)


def trim(directory: Directory, marked_id: int, backups: int) -> list[str]:
    """Remove the journals before the marked one, except the newest `backups`; return their names.

    A power cut may bring one back. It lies before the mark, and is removed again.
    """
    before = [journal_id for journal_id in journal_ids(directory) if journal_id < marked_id]
    names = [filenames.journal(journal_id) for journal_id in before[: max(0, len(before) - backups)]]
    for name in names:
        # A checkpoint and the search for space may remove the same journals at the same moment.
        with suppress(FileNotFoundError):
            directory.remove(name)
    return names
