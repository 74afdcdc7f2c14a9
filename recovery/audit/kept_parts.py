"""Parts of entry logs that are kept in a report's directory, and whether one may be used again.

What a part says was read from bytes, and may stand for them as long as nobody has changed them. So the file
must have the same inode, size, time of change and header, and the same store must call it the same log; where
it lies does not matter, because an audit reads a live store through links of its own. Rot changes bytes and
none of these: that is what reading again is for, see `recovery.audit.keeping`.

A directory of parts is believed. Whoever can write in it can say that a log is sound: an audit may only go on
from a report of one's own.
"""

from __future__ import annotations

import enum
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit import part_file
from recovery.audit.part_identity import (
    Identity,
    Label,
    Whose,
    decode_label,
    encode_label,
    identity,
    is_final,
    is_sound,
)
from recovery.audit.part_manner import Manners
from storage import filenames
from storage.codec.entrylog import PREFIX_SIZE
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from recovery.audit.log_scan import ScanLog
    from recovery.verify.parts import LogPart

FOLDER = "parts"
_SUFFIX = ".parquet"


class Reuse(enum.Enum):
    """Which parts may be used again, where their files have not changed."""

    SOUND = "those without a flaw, where nobody writes any more"
    ENDED = "all: what an audit has read before it was interrupted, for that same audit"


@dataclass(frozen=True, slots=True)
class Found:
    """A part that may be used again."""

    name: str
    part: LogPart
    read_at_ns: int
    content: bytes
    """Its file's."""


class Kept:
    """The parts in one report's directory. What is in there is used or is not, and never an error."""

    def __init__(
        self,
        report: str | Path,
        whose: Mapping[str, Whose],
        reuse: Reuse = Reuse.SOUND,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`whose` tells of every log that is going to be read, by its path."""
        self.reuse = reuse
        self._folder = Path(report) / FOLDER
        self._whose = whose
        self._clock = clock
        self._salt = secrets.token_hex(16)
        self._manners = Manners()
        self._names: dict[str, list[str]] = {}
        for name in self._listed():
            self._names.setdefault(_beginning(name), []).append(name)

    def _listed(self) -> list[str]:
        try:
            names = PosixDirectory(self._folder).names()
        except OSError:
            return []
        return [one for one in names if one.endswith(_SUFFIX)]

    # ── used again ───────────────────────────────────────────────────────────────────────────────────

    def identity(self, task: ScanLog) -> Identity | None:
        """Of the bytes that are there now; `None`: they cannot be told."""
        known = self._whose.get(task.path)
        return None if known is None else identity(task, known.store)

    def find(self, task: ScanLog) -> LogPart | None:
        """What reading that range would find, unless it has rotted."""
        found = self.found(task, self.identity(task))
        return None if found is None else found.part

    def found(self, task: ScanLog, now: Identity | None, but: Collection[str] = ()) -> Found | None:
        """The same, with all that is known of it, unless its name is among those."""
        names = [] if now is None else self._names.get(now.name, [])
        usable = (self._usable(one, task, now) for one in names if now is not None and one not in but)
        return next((found for found in usable if found is not None), None)

    def _usable(self, name: str, task: ScanLog, now: Identity) -> Found | None:
        try:
            content = (self._folder / name).read_bytes()
            # No range has more runs than there is room for records.
            labelled = part_file.decode(content, now.size // PREFIX_SIZE)
            label = None if labelled is None else decode_label(labelled.label)
            salt = b"" if label is None else bytes.fromhex(label.salt)
        except (OSError, ValueError):
            return None
        if labelled is None or label is None or label.identity != now or not now.fits(labelled.part):
            return None
        if not self._may_stand(labelled.part, label):
            return None
        if label.manner != self._manners.of(labelled.part, task.ways, task.steps, salt):
            return None
        # A clock that was wrong must not keep a part young for ever.
        read_at = label.read_at_ns if label.read_at_ns <= self._clock() else 0
        return Found(name, labelled.part, read_at, content)

    def _may_stand(self, part: LogPart, label: Label) -> bool:
        return self.reuse is Reuse.ENDED or (label.is_final and is_sound(part))

    # ── kept ─────────────────────────────────────────────────────────────────────────────────────────

    def keep(self, task: ScanLog, part: LogPart, before: Identity | None) -> str | None:
        """Keeps a part under the name that is returned; `None`: its file has changed, or cannot be told.

        `before` is what the file was before it was read.
        """
        if before is None or before != self.identity(task) or not before.fits(part):
            return None
        manner = self._manners.of(part, task.ways, task.steps, bytes.fromhex(self._salt))
        final = is_final(part, self._whose[task.path].final_end)
        label = Label(before, manner, self._salt, final, self._clock())
        name = f"{before.name}{manner[:8]}{_SUFFIX}"
        self._write(name, part_file.encode(part, encode_label(label)))
        return name

    def adopt(self, found: Found) -> str:
        """Keeps a part from another report as it is, with the time when its bytes were read."""
        path = self._folder / found.name
        if not path.exists() or path.read_bytes() != found.content:
            self._write(found.name, found.content)
        return found.name

    def _write(self, name: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        folder, draft = PosixDirectory(self._folder), filenames.draft(name)
        (self._folder / draft).unlink(missing_ok=True)
        with folder.create(draft) as file:
            file.write(0, [content])
        # Not synced: what a power cut leaves of it does not match its digest, and is read once more.
        folder.rename(draft, name)

    def forget_others(self, names: Collection[str]) -> None:
        """Removes all parts but these: of logs that are gone, and of ranges that nobody asks for any more."""
        for name in self._listed():
            if name not in names:
                (self._folder / name).unlink(missing_ok=True)


def _beginning(name: str) -> str:
    return name[: name.rfind("-") + 1]
