"""The operations on a disk, in order.

Only operations that change something or make something durable have a number. The number identifies a crash
point; crashing at an operation that only reads would make no difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.crashlab.model.disk_errors import Extent


class Verb(StrEnum):
    """The verbs of the ports in `storage.disk.files`."""

    CREATE = "create"
    WRITE = "write"
    ZERO_FILL = "zero_fill"
    SYNC = "sync"
    RENAME = "rename"
    REMOVE = "remove"
    MAKE = "make"
    SYNC_DIRECTORY = "sync_directory"
    LOCK = "lock"
    NAMES = "names"
    OPEN = "open"
    READ = "read"


LOOKING = frozenset({Verb.NAMES, Verb.OPEN, Verb.READ})
WRITING = frozenset({Verb.WRITE, Verb.ZERO_FILL})
SYNCING = frozenset({Verb.SYNC, Verb.SYNC_DIRECTORY})


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. Its number is its position in the trace, from 1; an operation that only reads has 0.

    `target` is the new path of a rename. `outcome` is "attempted" before the operation, then "done",
    "stopped", or the name of the error that was raised.
    """

    number: int
    verb: Verb
    path: str
    offset: int = 0
    size: int = 0
    target: str = ""
    outcome: str = "attempted"
    node: int = field(default=0, compare=False)
    """The number of the file or directory on the platter; a path alone may mean different files."""
    data: bytes = field(default=b"", compare=False, repr=False)
    """All bytes that a write was asked to write."""
    extent: Extent | None = field(default=None, compare=False, repr=False)
    """How much of the operation was done; None before it."""
