"""Replacing a file in one step: draft → write → sync → rename → sync the directory.

A crash leaves the old file or the new one as a whole, because the draft is durable before it gets the name.
A power cut may bring the old file back until the directory is synced, so nothing may depend on the new one
before that. After an error either file may have the name, and the next attempt removes a draft that is left.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from storage.disk import filenames

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from storage.disk.files import Directory, WriteFile


def create_draft(directory: Directory, name: str) -> WriteFile:
    """Return an empty draft of the file, in place of one that an earlier attempt may have left."""
    draft = filenames.draft(name)
    if draft in directory.names():
        # Removed and not written over, because the content after a failed write or sync is indeterminate.
        directory.remove(draft)
    return directory.create(draft)


def write_draft(directory: Directory, name: str, buffers: Iterable[bytes]) -> None:
    """Write a draft and make its content durable. The file of that name stays what it is."""
    with create_draft(directory, name) as file:
        file.write(0, buffers)
        # Before the rename: a durable name must never precede durable content.
        file.sync()


def remove_draft(directory: Directory, name: str) -> None:
    """Remove a draft. Until the directory is synced, a power cut may bring it back."""
    directory.remove(filenames.draft(name))


def publish_draft(directory: Directory, name: str) -> None:
    """Give a draft that is durable its name, durably."""
    directory.rename(filenames.draft(name), name)
    # Before anything depends on the new file: a power cut could otherwise bring the old one back.
    directory.sync()


@contextmanager
def replacing(directory: Directory, name: str) -> Iterator[WriteFile]:
    """Yield a draft to write; sync it and give it its name at the end, not yet durably.

    The file stays open for the caller, and is closed after an error.
    """
    with ExitStack() as unless_named:
        file = create_draft(directory, name)
        unless_named.callback(file.close)
        yield file
        # Before the rename: a durable name must never precede durable content.
        file.sync()
        directory.rename(filenames.draft(name), name)
        unless_named.pop_all()


def sync_name(directory: Directory, file: WriteFile) -> None:
    """Make the name of a file from `replacing` durable, or close the file."""
    try:
        directory.sync()
    except BaseException:
        file.close()
        raise
