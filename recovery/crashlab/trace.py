"""What was asked of a disk, one value for each operation, in the order it was asked.

Only operations that change something or make something durable are numbered: a number is a crash point,
and a disk that is merely looked at has none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recovery.crashlab.faults import Extent


class Verb(StrEnum):
    """The verbs of the ports in `storage.files`."""

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
    """One operation; its number is its place in the trace, from 1, and 0 where it only looks.

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
    """The file or directory, by its number on the platter: a path names now one, now another."""
    data: bytes = field(default=b"", compare=False, repr=False)
    """What a write is about, all of it."""
    extent: Extent | None = field(default=None, compare=False, repr=False)
    """How much of the operation was done; None before it."""
