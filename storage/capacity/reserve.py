"""The reserve: files of zeros that are removed when the disk is full, so that important work finds space.

    reserve            given up by a running store
    reserve.opening    given up by an opening only, because a store may end without the other one
    *.draft            being filled: zeros are written and synced, a part in each step

The zeros are written and not only allocated, because a system may promise space that it does not have, and
because blocks that were written survive a power cut. A file exists for its blocks, and its content is never
read. A crash leaves the old file, the new one or none, and an opening removes a draft.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.disk.replace import create_draft, publish_draft, remove_draft

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from storage.disk.files import Directory, WriteFile

FILL_STEP = 1 << 20
"""Bytes between two syncs, because the journal's syncs would wait for a single large one."""


class Reserve:
    """One file of the reserve of a store. Any thread may give it up; one worker fills it."""

    def __init__(self, directory: Directory, name: str, lock: AbstractContextManager[object]) -> None:
        self._directory = directory
        self._name = name
        self._lock = lock
        """Held for a step of filling, and while the files are removed."""
        # field                               written by                         read by
        self.size = _size_of(directory, name)  # the lock's holder                  any thread
        """The bytes that can be given up; 0 if there is no reserve."""
        self._draft: WriteFile | None = None  # the lock's holder                the same
        self._filled = 0  #                   the lock's holder                  the same

        self.is_name_unknown = False  #       the lock's holder                  the worker
        """Whether a rename or a sync of the directory has failed."""

    @property
    def is_there(self) -> bool:
        return self.size > 0

    @property
    def is_filling(self) -> bool:
        """Whether a draft takes space already."""
        return self._draft is not None

    def give_up(self) -> bool:
        """Free the space durably; return False if there is none to free.

        After an error it is unknown which names of the directory are durable.
        """
        with self._lock:
            had_draft = self._drop_draft()
            if not self.is_there:
                return had_draft
            self.size = 0
            with suppress(FileNotFoundError):  # another program has removed it
                self._directory.remove(self._name)
            # The freed blocks may be taken only when the removal is durable.
            self._directory.sync()
            return True

    def fill(self, size: int) -> bool:
        """Write the next part of a reserve of that size. Return whether it is whole and has its name.

        After an `OSError` the next call begins with a new file, because another sync of the old one would
        prove nothing.
        """
        with self._lock:
            if self._draft is None:
                self._draft, self._filled = create_draft(self._directory, self._name), 0
            part = min(FILL_STEP, size - self._filled)
            try:
                self._draft.zero_fill(self._filled, part)
                self._draft.sync()
            except OSError:
                # The zeros that were written may be the very space that is missing.
                self._drop_draft()
                raise
            self._filled += part
            return self._filled >= size

    def publish(self) -> None:
        """Give the filled draft its name, durably. After an error it is unknown which names are durable."""
        with self._lock:
            if self._draft is None:
                return  # it was given up meanwhile
            self._draft.close()
            self._draft = None
            self.is_name_unknown = True
            publish_draft(self._directory, self._name)
            self.is_name_unknown = False
            self.size = self._filled

    def discard_draft(self) -> None:
        """Remove a draft, at the end of a run."""
        with self._lock:
            self._drop_draft()

    def close(self) -> None:
        """Close the draft, and leave its file to the next opening."""
        draft, self._draft = self._draft, None
        if draft is not None:
            draft.close()

    def _drop_draft(self) -> bool:
        draft, self._draft = self._draft, None
        if draft is None:
            return False
        draft.close()
        with suppress(OSError):  # the next draft takes its place, or the next opening removes it
            remove_draft(self._directory, self._name)
        return True


def _size_of(directory: Directory, name: str) -> int:
    try:
        file = directory.open(name)
    except FileNotFoundError:
        return 0
    with file:
        return file.size()
