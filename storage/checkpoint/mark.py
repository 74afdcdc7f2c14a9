"""The lastMark file of a ledger directory: loading it, and its changes while a store runs.

Two events change it: a checkpoint advances it, and a new journal is announced in it. The announcement is
needed, because otherwise an opening could not notice that the newest journal is missing.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storage.checkpoint import mark_format
from storage.disk import filenames
from storage.disk import replace as disk_replace
from storage.entry.read_result import Damaged, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from storage.disk.files import Directory
    from storage.entry.position import JournalPosition
    from storage.index.state import IndexState


@dataclass(frozen=True, slots=True)
class NoMark:
    """There is no lastMark file: the directory is new, or its mark was lost."""


def write_draft(directory: Directory, mark: mark_format.Mark) -> None:
    """Write the mark under a draft's name, its content durable. No reader sees it."""
    disk_replace.write_draft(directory, filenames.LAST_MARK, [mark_format.encode(mark)])


def publish(directory: Directory) -> None:
    """Put the draft in the mark's place, in one step and durably. After an error either may be there.

    Nothing may be trimmed before, because a power cut that brings the old mark back must find its journals.
    """
    disk_replace.publish_draft(directory, filenames.LAST_MARK)


LoadedMark = mark_format.Mark | mark_format.EmptyMark | NoMark | Torn | Damaged


def load(directory: Directory, name: str = filenames.LAST_MARK) -> LoadedMark:
    """Load the directory's mark. The caller decides what a missing or damaged mark means."""
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return NoMark()
    with file:
        # One byte more than the longest mark, so that a longer file is recognized as damaged.
        return mark_format.decode(file.read(0, mark_format.SIZE + 1))


class LastMark:
    """The mark of a running store. Any thread may change it; each change is durable on return."""

    def __init__(
        self, directory: Directory, stored: mark_format.Mark, lock: AbstractContextManager[object]
    ) -> None:
        self._directory = directory
        self._stored = stored
        """The mark in the file. Written by checkpoints, and by commits that begin a journal, under the
        lock."""
        self._lock = lock
        """Held from the draft up to its rename, because all changes write the same draft."""

    @property
    def generation(self) -> int | None:
        """The generation of the index whose state the mark has; `None` for a bookie's mark."""
        return None if self._stored.trailer is None else self._stored.trailer.generation

    @property
    def position(self) -> JournalPosition:
        """The position from which an opening would replay, according to the durable mark."""
        return self._stored.position

    def advance(self, state: IndexState) -> OSError | None:
        """Advance the mark to the state of the index.

        Return the error if the draft could not be written; then nothing has changed. Any other error is
        raised; then the file may have either mark.
        """
        with self._lock:
            mark = mark_of(state, max(newest_named(self._stored), state.mark.journal_id))
            try:
                write_draft(self._directory, mark)
            except OSError as error:
                return error
            self._publish(mark)
        return None

    @contextmanager
    def announcing(self, journal_id: int) -> Iterator[None]:
        """Announce a journal, whose name is made durable inside the `with`.

        Nothing may be acknowledged in the journal before the end of the `with`. An error of the draft is
        raised before the body runs; then nothing has changed.
        """
        with self._lock:
            assert self._stored.trailer is not None, "a mark of ours has a trailer"
            mark = replace(self._stored, trailer=replace(self._stored.trailer, newest_journal=journal_id))
            write_draft(self._directory, mark)
            yield
            # After the journal's name is durable, because a power cut could otherwise take the journal away.
            self._publish(mark)

    def _publish(self, mark: mark_format.Mark) -> None:
        publish(self._directory)
        self._stored = mark


def mark_of(state: IndexState, newest_journal: int) -> mark_format.Mark:
    """Return the mark for a state of the index."""
    trailer = mark_format.Trailer(state.generation, newest_journal, state.log_end, state.rows_sequence)
    return mark_format.Mark(state.mark, trailer)


def newest_named(mark: mark_format.Mark | None) -> int:
    """Return the newest journal whose name is durable according to the mark; 0 if it names none."""
    return 0 if mark is None or mark.trailer is None else mark.trailer.newest_journal
