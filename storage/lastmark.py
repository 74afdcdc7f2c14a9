"""The lastMark file of a ledger directory, and who stores it while a store runs.

Two things change it: a checkpoint moves it on, and a new journal is announced in it. Nothing in the newest
journal tells that there is such a journal, once the file is gone; what the mark announces must be there.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from storage import filenames
from storage.codec import mark as codec
from storage.outcome import Damaged, Torn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from storage.files import Directory
    from storage.index_state import IndexState


@dataclass(frozen=True, slots=True)
class NoMark:
    """There is no such file: a fresh directory, or one whose mark was lost."""


def write_draft(directory: Directory, mark: codec.Mark) -> None:
    """The mark under a draft's name, its content durable. Changes nothing that anybody reads."""
    draft = filenames.draft(filenames.LAST_MARK)
    if draft in directory.names():
        directory.remove(draft)  # what an attempt that failed has left in it is unknown
    with directory.create(draft) as file:
        file.write(0, [codec.encode(mark)])
        # Before the rename: a durable name must never precede durable content.
        file.sync()


def publish(directory: Directory) -> None:
    """The draft takes the mark's place, in one step and durably. After an error either may be there."""
    directory.rename(filenames.draft(filenames.LAST_MARK), filenames.LAST_MARK)
    # Before anything is trimmed: a power cut that brings the old mark back must find its journals.
    directory.sync()


LoadedMark = codec.Mark | codec.EmptyMark | NoMark | Torn | Damaged


def load(directory: Directory, name: str = filenames.LAST_MARK) -> LoadedMark:
    """What the directory's mark says; the caller decides what a missing or damaged one means."""
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return NoMark()
    with file:
        # One byte more than the longest: anything that is too long must not look right.
        return codec.decode(file.read(0, codec.SIZE + 1))


class LastMark:
    """The mark of a running store. Any thread may change it; each change is durable when it is made."""

    def __init__(
        self, directory: Directory, stored: codec.Mark, lock: AbstractContextManager[object]
    ) -> None:
        self._directory = directory
        self._stored = stored
        # From the draft up to its rename: whoever changes the mark writes the draft under the same name.
        self._lock = lock

    def move(self, state: IndexState) -> OSError | None:
        """Moves the mark to where the index is.

        Answers with the error where no draft could be written, and nothing is changed; raises any other:
        then either mark may be there.
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
        """Announces the journal whose name is made durable within; nothing may be acknowledged in it before.

        An error of the draft is raised on the way in, and nothing is changed.
        """
        with self._lock:
            assert self._stored.trailer is not None, "a mark of ours has a trailer"
            mark = replace(self._stored, trailer=replace(self._stored.trailer, newest_journal=journal_id))
            write_draft(self._directory, mark)
            yield
            # Behind the name: a power cut may take away one that is not durable yet.
            self._publish(mark)

    def _publish(self, mark: codec.Mark) -> None:
        publish(self._directory)
        self._stored = mark


def mark_of(state: IndexState, newest_journal: int) -> codec.Mark:
    """The mark that says what the index's state says."""
    trailer = codec.Trailer(state.generation, newest_journal, state.log_end, state.rows_sequence)
    return codec.Mark(state.mark, trailer)


def newest_named(mark: codec.Mark | None) -> int:
    """The newest journal that the mark knows to have a durable name."""
    return 0 if mark is None or mark.trailer is None else mark.trailer.newest_journal
