"""The parts of entry logs that are kept in a report's directory, and whether one may be used again.

A part describes bytes, and may be used as long as these have not changed. So the file must have the same
inode, size, modification time and header, and belong to the same log of the same store. Its path does not
matter, because an audit reads a live store through links of its own. Rot changes bytes but none of these:
therefore a share is read again, see `recovery.audit.cache.engine`.

A directory of parts is trusted. A user who can write to it can claim that a log is sound, therefore an audit
may only use one's own reports.
"""

from __future__ import annotations

import enum
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.audit.cache import part_table
from recovery.audit.cache.part_identity import Identity, LogOwner, identity, is_final
from recovery.audit.cache.part_table import Label, is_sound
from recovery.audit.cache.settings_fingerprint import SettingsFingerprint
from storage.disk import filenames
from storage.disk.posix import PosixDirectory
from storage.entrylog.format import PREFIX_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from recovery.audit.model.scan_results import LogPart
    from recovery.audit.scan.entry_log import ScanLog

FOLDER = "parts"
_SUFFIX = ".parquet"


class Reuse(enum.Enum):
    """Which parts may be used again, if their files have not changed."""

    SOUND = "parts without a flaw, of ranges that no process writes to any more"
    ENDED = "all parts that an interrupted audit has read, for that same audit"


@dataclass(frozen=True, slots=True)
class CachedPart:
    """A part that may be used again."""

    name: str
    part: LogPart
    read_at_ns: int
    content: bytes
    """The content of the part's file."""


class PartCache:
    """The parts in one report's directory. A file that cannot be used is ignored and never an error."""

    def __init__(
        self,
        report: str | Path,
        owners: Mapping[str, LogOwner],
        reuse: Reuse = Reuse.SOUND,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`owners` describes every log that is going to be read, by its path."""
        self.reuse = reuse
        self._folder = Path(report).absolute() / FOLDER
        self._owners = owners
        self._clock = clock
        self._salt = secrets.token_hex(16)
        self._settings = SettingsFingerprint()
        self._names: dict[str, list[str]] = {}
        for name in self._listed():
            self._names.setdefault(_beginning(name), []).append(name)

    def _listed(self) -> list[str]:
        try:
            names = PosixDirectory(self._folder).names()
        except OSError:
            return []
        return [one for one in names if one.endswith(_SUFFIX)]

    # ── reuse of parts ───────────────────────────────────────────────────────────────────────────────────

    def identity(self, task: ScanLog) -> Identity | None:
        """Return the identity of the bytes that are there now, or `None` if it cannot be determined."""
        known = self._owners.get(task.path)
        return None if known is None else identity(task, known.store)

    def find(self, task: ScanLog) -> LogPart | None:
        """Return what reading that range would find, unless it has rotted."""
        found = self.found(task, self.identity(task))
        return None if found is None else found.part

    def found(self, task: ScanLog, now: Identity | None, but: Collection[str] = ()) -> CachedPart | None:
        """Return the part with its metadata, unless its file name is in `but`."""
        names = [] if now is None else self._names.get(now.name, [])
        usable = (self._usable(one, task, now) for one in names if now is not None and one not in but)
        return next((found for found in usable if found is not None), None)

    def _usable(self, name: str, task: ScanLog, now: Identity) -> CachedPart | None:
        try:
            content = (self._folder / name).read_bytes()
            # No range has more runs than it has space for records.
            found = part_table.decode(content, _digest_in(name), now.file_size // PREFIX_SIZE)
            salt = b"" if found is None else bytes.fromhex(found.label.salt)
        except (OSError, ValueError):
            return None
        if found is None or found.label.identity != now:
            return None
        label, part = found
        if self.reuse is Reuse.SOUND and not (label.is_final and is_sound(part)):
            return None
        if label.settings != self._settings.of(part, task.policy, task.steps, salt):
            return None
        # A clock that was wrong must not make a part look recent for ever.
        read_at = label.read_at_ns if label.read_at_ns <= self._clock() else 0
        return CachedPart(name, part, read_at, content)

    # ── keeping parts ────────────────────────────────────────────────────────────────────────────────────

    def keep(self, task: ScanLog, part: LogPart, before: Identity | None) -> str | None:
        """Keep a part. Return its file name, or `None` if the log has changed or cannot be identified.

        `before` is the identity of the log before it was read.
        """
        if before is None or before != self.identity(task) or not before.fits(part):
            return None
        settings = self._settings.of(part, task.policy, task.steps, bytes.fromhex(self._salt))
        final = is_final(part, self._owners[task.path].final_end)
        label = Label(before, settings, self._salt, final, self._clock())
        content = part_table.encode(part, label)
        name = f"{before.name}{settings[:8]}.{part_table.content_digest(content)}{_SUFFIX}"
        self._write(name, content)
        return name

    def adopt(self, found: CachedPart) -> str:
        """Keep a part from another report as it is, with the time at which its bytes were read."""
        path = self._folder / found.name
        if not path.exists() or path.read_bytes() != found.content:
            self._write(found.name, found.content)
        return found.name

    def _write(self, name: str, content: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        folder, draft = PosixDirectory(self._folder), filenames.draft(name)
        (self._folder / draft).unlink(missing_ok=True)
        for older in self._folder.glob(f"{name.partition('.')[0]}.*{_SUFFIX}"):
            older.unlink()
        with folder.create(draft) as file:
            file.write(0, [content])
        # Not synced: if a power cut damages it, its digest does not match, and the log is read again.
        folder.rename(draft, name)

    def forget_others(self, names: Collection[str]) -> None:
        """Remove all parts but these: those of logs that are gone, and of ranges that are not scanned any
        more.
        """
        for name in self._listed():
            if name not in names:
                (self._folder / name).unlink(missing_ok=True)


def _digest_in(name: str) -> str:
    """Return the digest of a file's bytes that its name has."""
    return name.removesuffix(_SUFFIX).rpartition(".")[2]


def _beginning(name: str) -> str:
    return name[: name.rfind("-") + 1]
