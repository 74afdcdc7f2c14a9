"""Everything this package raises, as one small tree.

    StoreError
    ├── the caller's mistake, or bad timing: nothing was stored, nothing is broken
    │   ├── InvalidEntry          an entry that no file could hold
    │   │   ├── EntryTooLarge     larger than this store takes
    │   │   └── DigestMismatch    it has been damaged on its way here
    │   ├── InvalidFormat         a request to write what the format forbids
    │   ├── InvalidConfig         a setting that could not work
    │   ├── NoSuchLedger          also a KeyError
    │   ├── NoSuchEntry           also a KeyError
    │   ├── LedgerFenced          no more ordinary adds: another has taken the ledger over
    │   ├── Unauthorized          not the password that the ledger was made with
    │   │   └── LedgerUnproven    nothing tells what its password was
    │   ├── DigestDiffers         the ledger has another digest type
    │   ├── DigestUnknown         nothing tells its digest type: it has to be named
    │   ├── StoreLocked           another process owns the directory
    │   ├── NotAStore             a directory that holds something else
    │   ├── NewerFormat           written by a later version of this package
    │   ├── ForeignStore          a bookie's directory, and never one of ours
    │   ├── StoreClosed           used after its close
    │   ├── ForkedStore           used in a fork of the process that opened it
    │   ├── OtherLoop             awaited on another event loop than the one that opened it
    │   └── Overloaded            the disk is slower than the adds, for too long
    ├── the disk failing
    │   ├── StoreFailed           a write or a sync failed: no more adds, reads go on
    │   └── DiskFull              also an OSError; adds resume when there is space
    └── durable bytes that are wrong
        ├── AnswerUnknown         it is not there, and may have been: neither found nor missing
        ├── EntryUnreadable       it was acknowledged and is damaged: never "missing"
        └── CorruptionError       the store refuses to open, rather than lose what it acknowledged

Any other trouble with the disk is an `OSError`, raised by the file layer as the system gave it. Damage that a
reader *meets* is not raised at all: it is a value (`storage.outcome`).

An error's `args` are what it was made of, not its sentence: so it keeps its attributes from one process to
another.
"""

from __future__ import annotations

import errno


class StoreError(Exception):
    """The root: `except StoreError` catches whatever this package raises on purpose."""


# the caller's mistake, or bad timing


class InvalidEntry(StoreError, ValueError):
    """An entry with an id, length or payload that no file could hold."""


class EntryTooLarge(InvalidEntry):
    """An entry of more bytes, head and digest included, than `entry_size_max`; nothing was stored."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(size, limit)
        self.size = size
        self.limit = limit

    def __str__(self) -> str:
        return f"an entry of {self.size} bytes, head and digest included; the limit is {self.limit}"


class DigestMismatch(InvalidEntry):
    """The digest that the entry came with does not belong to its bytes; nothing was stored."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        super().__init__(ledger_id, entry_id)
        self.ledger_id = ledger_id
        self.entry_id = entry_id

    def __str__(self) -> str:
        return f"the digest of entry {self.entry_id} of ledger {self.ledger_id} does not belong to its bytes"


class InvalidFormat(StoreError, ValueError):
    """A request to write bytes that the file format forbids."""


class InvalidConfig(StoreError, ValueError):
    """A setting that could not work; `name` says which, and where it was read if it came from a file."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


class NoSuchLedger(StoreError, KeyError):
    """No ledger of that id was ever written here, or it was deleted."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"there is no ledger {self.ledger_id}"


class NoSuchEntry(StoreError, KeyError):
    """The ledger has no entry of that id: certain, as opposed to `EntryUnreadable`."""

    def __init__(self, ledger_id: int, entry_id: int) -> None:
        super().__init__(ledger_id, entry_id)
        self.ledger_id = ledger_id
        self.entry_id = entry_id

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} has no entry {self.entry_id}"


class LedgerFenced(StoreError):
    """Another has taken the ledger over: it takes no adds but those of a recovery. Nothing was stored."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} is fenced: it takes no more entries"


class Unauthorized(StoreError):
    """The password, or the key made of it, is not the one that the ledger was made with."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"ledger {self.ledger_id} was made with another password"


class LedgerUnproven(Unauthorized):
    """No journal that is left holds the ledger's key, so nobody can be told from its writer: reads only."""

    def __str__(self) -> str:
        return (
            f"no journal that is left holds the key of ledger {self.ledger_id}: "
            "it can be read, and takes no more entries"
        )


class DigestDiffers(StoreError, ValueError):
    """The ledger's entries are protected in another way than was asked for; `recorded` says how."""

    def __init__(self, ledger_id: int, recorded: str) -> None:
        super().__init__(ledger_id, recorded)
        self.ledger_id = ledger_id
        self.recorded = recorded

    def __str__(self) -> str:
        return f"the entries of ledger {self.ledger_id} are protected by {self.recorded}"


class DigestUnknown(StoreError, ValueError):
    """Nothing tells how the ledger's entries are protected, nor where their payloads begin."""

    def __init__(self, ledger_id: int) -> None:
        super().__init__(ledger_id)
        self.ledger_id = ledger_id

    def __str__(self) -> str:
        return f"nothing tells the digest type of ledger {self.ledger_id}: name it with digest="


class StoreLocked(StoreError):
    """Another process holds the directory's lock; nothing was changed."""

    def __init__(self, path: str, pid: int | None) -> None:
        super().__init__(path, pid)
        self.path = path
        self.pid = pid

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid is not None else "another process"
        return f"{self.path} is in use by {holder}"


class NotAStore(StoreError):
    """The directory is no store, and not empty either; nothing was changed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.path} is not a store: {self.reason}"


class NewerFormat(StoreError):
    """A later version of this package wrote `what`, and this one cannot read it; nothing was changed."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(path, what)
        self.path = path
        self.what = what

    def __str__(self) -> str:
        return f"{self.path} was written by a newer version: {self.what}"


class ForeignStore(StoreError):
    """Only a bookie has written to the directory; `reason` says how it becomes ours. Nothing was changed."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        return f"a bookie has written to {self.path}: {self.reason}"


class StoreClosed(StoreError):
    """The store was closed: it takes nothing and answers nothing any more."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store {self.path} is closed"


class ForkedStore(StoreError):
    """This process is a fork of the one that opened the store, and shares nothing with it that is safe."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store {self.path} was opened before a fork: only the process that opened it may use it"


class OtherLoop(StoreError, RuntimeError):
    """The store belongs to the event loop that opened it, and this is another; nothing was done."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the store {self.path} was opened on another event loop: only there can it be awaited"


class Overloaded(StoreError):
    """Both tables stayed full for `throttle_timeout_s`; nothing was stored, and trying again is safe."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(waited_s)
        self.waited_s = waited_s

    def __str__(self) -> str:
        return f"both tables are full, and no checkpoint made room in {self.waited_s:g} s: nothing was stored"


# the disk failing


class StoreFailed(StoreError):
    """A write or a sync failed, and this store writes no more; `__cause__` is the first error.

    What was acknowledged stays readable. Of what was under way nobody knows: opening again finds out.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        why = f" after {self.__cause__!r}" if self.__cause__ is not None else ""
        return (
            f"the store {self.path} has stopped writing{why}: "
            "what was acknowledged stays readable, and opening it again recovers"
        )

    def __reduce__(self) -> tuple[type[StoreFailed], tuple[str], dict[str, object]]:
        # Pickling forgets causes, and here the cause is half of what is told. Setting none hides a context.
        cause = {"__cause__": self.__cause__} if self.__cause__ is not None else {}
        return type(self), (self.path,), {**self.__dict__, **cause}


class DiskFull(StoreError, OSError):
    """There is no space where the store lives: nothing was stored, and adds resume when there is."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.ENOSPC, "no space left on the device", path)
        self.path = path

    def __str__(self) -> str:
        return f"no space left for {self.path}: nothing was stored, and adds resume when there is"

    def __reduce__(self) -> tuple[type[DiskFull], tuple[str]]:
        return type(self), (self.path,)


# durable bytes that are wrong


class AnswerUnknown(StoreError):
    """What was asked for is not there, and whether it ever was cannot be told: something here was lost.

    Not a `KeyError`: who takes it for missing would give up what another copy may have.
    """

    def __init__(self, ledger_id: int, entry_id: int | None = None) -> None:
        super().__init__(ledger_id, entry_id)
        self.ledger_id = ledger_id
        self.entry_id = entry_id

    def __str__(self) -> str:
        what = f"ledger {self.ledger_id}"
        what = what if self.entry_id is None else f"entry {self.entry_id} of {what}"
        return f"{what} is not here, and may have been: something of this store was lost"


class EntryUnreadable(StoreError):
    """The entry was acknowledged, and its bytes cannot be had: damaged, or the disk does not give them.

    Not a `KeyError`: whoever treats a missing entry as normal must not take this for one. No file is named
    where none was reached.
    """

    def __init__(
        self, ledger_id: int, entry_id: int, reason: str, file: str | None = None, offset: int | None = None
    ) -> None:
        super().__init__(ledger_id, entry_id, reason, file, offset)
        self.ledger_id = ledger_id
        self.entry_id = entry_id
        self.reason = reason
        self.file = file
        self.offset = offset

    def __str__(self) -> str:
        place = f" at {self.file}@{self.offset}" if self.file is not None else ""
        return f"entry {self.entry_id} of ledger {self.ledger_id} is unreadable{place}: {self.reason}"


class CorruptionError(StoreError):
    """Bytes that were known to be durable are wrong or gone; `finding` is the stable id of such damage."""

    def __init__(self, file: str, offset: int, reason: str, finding: str) -> None:
        super().__init__(file, offset, reason, finding)
        self.file = file
        self.offset = offset
        self.reason = reason
        self.finding = finding

    def __str__(self) -> str:
        return f"{self.finding} {self.file}@{self.offset}: {self.reason}"
