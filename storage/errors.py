"""All errors that this package raises.

    StoreError
    ├── the caller's mistake, or bad timing: nothing was stored, nothing is broken
    │   ├── InvalidEntry          an entry that no file can hold
    │   │   ├── EntryTooLarge     larger than this store accepts
    │   │   └── DigestMismatch    the entry was damaged before it arrived
    │   ├── InvalidFormat         a request to write what the format forbids
    │   ├── InvalidConfig         a setting that cannot work
    │   ├── NoSuchLedger          also a KeyError
    │   ├── NoSuchEntry           also a KeyError
    │   │   └── EntryTruncated    it was there, and was given up by `truncate`
    │   ├── LedgerFenced          no more ordinary adds: another client has taken the ledger over
    │   ├── Unauthorized          another password than the one that the ledger was made with
    │   │   └── LedgerUnproven    the ledger's key is lost, so no password can be checked
    │   ├── DigestDiffers         the ledger has another digest type
    │   ├── DigestUnknown         the ledger's digest type is not known and has to be passed
    │   ├── LacBeyondEnd          a last add confirmed that is larger than the id of the last entry
    │   ├── StoreLocked           another process has the directory open
    │   │   └── AlreadyOpen       this process has the directory open
    │   ├── NotAStore             a directory that holds something else
    │   ├── NewerFormat           written by a later version of this package
    │   ├── ForeignStore          a bookie's directory that was never one of our stores
    │   ├── StoreClosed           used after its close
    │   ├── ForkedStore           used in a fork of the process that opened it
    │   ├── ReentrantCall         a signal handler adds while its thread is inside of an add
    │   ├── OtherLoop             awaited on another event loop than the one that opened it
    │   └── Overloaded            the disk is slower than the adds, for too long
    ├── the disk failing
    │   ├── StoreFailed           a write or a sync failed: no more adds, reads go on
    │   └── DiskFull              also an OSError; adds resume when there is space
    └── durable bytes that are wrong
        ├── AnswerUnknown         not found, but it may have existed: neither found nor missing
        ├── EntryUnreadable       it was acknowledged and is damaged: never "missing"
        └── CorruptionError       the store refuses to open, because it would lose acknowledged data

`ClusterError`, another branch, is that of everything on the network: `storage.cluster.errors` draws it.

Any other trouble with the disk is an `OSError`, raised by the file layer as the system gave it. Damage that a
reader finds is a value and not an exception (`storage.entry.read_result`).

An error's `args` are the values of its fields, in their order, and not its message. So an error that is
pickled keeps its attributes.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, ClassVar, TypeVar, dataclass_transform

_Kind = TypeVar("_Kind", bound="type[StoreError]")


class StoreError(Exception):
    """The base class of all errors that this package raises. Errors of the system stay `OSError`s.

    A subclass declares its fields as annotations, and its message as a template of them. The fields are the
    elements of `args`, so that raising an error costs no call of a constructor in Python.
    """

    fields: ClassVar[tuple[str, ...]] = ()
    text: ClassVar[str] = ""

    # Hidden from type checkers, because for them a class with `__getattr__` has every attribute.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            if name not in self.fields:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            return self.args[self.fields.index(name)]

    def __str__(self) -> str:
        if not self.text:
            return super().__str__()
        return self.text.format(**dict(zip(self.fields, self.args, strict=True)))


@dataclass_transform(eq_default=False)
def _with_fields(kind: _Kind) -> _Kind:
    """Make the annotations of an error class its fields, in the order of the positional arguments.

    Type checkers treat the class as a dataclass. It is none, because compiling a constructor for each class
    would add a tenth to the time that `import storage` takes.
    """
    kind.fields = tuple(kind.__annotations__)
    return kind


# the caller's mistake, or bad timing


class InvalidEntry(StoreError, ValueError):
    """An entry with an id, length or payload that no file can hold."""


@_with_fields
class EntryTooLarge(InvalidEntry):
    """An entry of more bytes, head and digest included, than `entry_size_max`; nothing was stored."""

    size: int
    limit: int
    text = "an entry of {size} bytes, head and digest included; the limit is {limit}"


@_with_fields
class DigestMismatch(InvalidEntry):
    """The digest that came with the entry does not match its bytes; nothing was stored."""

    ledger_id: int
    entry_id: int
    text = "the digest of entry {entry_id} of ledger {ledger_id} does not match its bytes"


class InvalidFormat(StoreError, ValueError):
    """A request to write bytes that the file format forbids."""


@_with_fields
class InvalidConfig(StoreError, ValueError):
    """A setting that cannot work. `name` includes file, line and key if it was read from a file."""

    name: str
    reason: str
    text = "{name}: {reason}"


@_with_fields
class NoSuchLedger(StoreError, KeyError):
    """No ledger of that id was ever written here, or it was deleted."""

    ledger_id: int
    text = "there is no ledger {ledger_id}"


@_with_fields
class NoSuchEntry(StoreError, KeyError):
    """The ledger certainly has no entry of that id, unlike `EntryUnreadable`."""

    ledger_id: int
    entry_id: int
    text = "ledger {ledger_id} has no entry {entry_id}"


@_with_fields
class EntryTruncated(NoSuchEntry):
    """The entry is before the first one that was not truncated: it is certainly gone, and for ever."""

    ledger_id: int
    entry_id: int
    first_entry_id: int
    text = "entry {entry_id} of ledger {ledger_id} was truncated: its entries begin at {first_entry_id}"


@_with_fields
class LedgerFenced(StoreError):
    """The ledger was fenced: it accepts no adds except those of a recovery. Nothing was stored."""

    ledger_id: int
    text = "ledger {ledger_id} is fenced: it takes no more entries"


@_with_fields
class Unauthorized(StoreError):
    """The password, or the key made of it, is not the one that the ledger was made with."""

    ledger_id: int
    text = "ledger {ledger_id} was made with another password"


class LedgerUnproven(Unauthorized):
    """No remaining journal holds the ledger's key, so no writer can be authorized: reads only."""

    text = "no remaining journal holds the key of ledger {ledger_id}, so the ledger can only be read"


@_with_fields
class DigestDiffers(StoreError, ValueError):
    """The ledger has another digest type than the caller passed; `recorded` is the ledger's."""

    ledger_id: int
    recorded: str
    text = "the entries of ledger {ledger_id} are protected by {recorded}"


@_with_fields
class DigestUnknown(StoreError, ValueError):
    """The digest type of the ledger's entries is not known, so it is not known where payloads begin."""

    ledger_id: int
    text = "the digest type of ledger {ledger_id} is not known: pass it as digest="


@_with_fields
class LacBeyondEnd(StoreError, ValueError):
    """A last add confirmed after the ledger's last entry. Readers would wait for that entry for ever."""

    ledger_id: int
    last_add_confirmed: int
    last_entry_id: int | None

    def __str__(self) -> str:
        end = "has no entry" if self.last_entry_id is None else f"ends at entry {self.last_entry_id}"
        return f"ledger {self.ledger_id} {end}, so entry {self.last_add_confirmed} cannot be confirmed"


@_with_fields
class StoreLocked(StoreError):
    """Another process holds the directory's lock; nothing was changed."""

    path: str
    pid: int | None

    def __str__(self) -> str:
        holder = f"process {self.pid}" if self.pid is not None else "another process"
        return f"{self.path} is in use by {holder}"


class AlreadyOpen(StoreLocked):
    """This process has the directory open already, often in a store that was never closed."""

    def __str__(self) -> str:
        return (
            f"{self.path} is already open in this process, {self.pid}: "
            "close the store or view that has it open (one that was never closed stays open), or use that one"
        )


@_with_fields
class NotAStore(StoreError):
    """The directory is neither a store nor empty; nothing was changed."""

    path: str
    reason: str
    text = "{path} is not a store: {reason}"


@_with_fields
class NewerFormat(StoreError):
    """A later version of this package wrote `what`, and this version cannot read it; nothing was changed."""

    path: str
    what: str
    text = "{path} was written by a newer version: {what}"


@_with_fields
class ForeignStore(StoreError):
    """Only a bookie has written to the directory. `reason` says how to import it. Nothing was changed."""

    path: str
    reason: str
    text = "a bookie has written to {path}: {reason}"


@_with_fields
class StoreClosed(StoreError):
    """The store was closed: it accepts no more adds and no more reads."""

    path: str
    text = "the store {path} is closed"


@_with_fields
class ForkedStore(StoreError):
    """This process is a fork of the process that opened the store, and may not use it."""

    path: str
    text = "the store {path} was opened before a fork; only the process that opened it may use it"


@_with_fields
class ReentrantCall(StoreError, RuntimeError):
    """A signal handler adds to a store while its thread is inside an add to it; nothing was stored.

    The interrupted add can continue only when the handler returns, so the new one would wait for ever.
    """

    path: str
    text = "a signal handler must not add to {path}: its thread is inside an add to it"


@_with_fields
class OtherLoop(StoreError, RuntimeError):
    """The store belongs to the event loop that opened it, and this is another one; nothing was done."""

    path: str
    text = "the store {path} was opened on another event loop and can only be awaited there"


@_with_fields
class Overloaded(StoreError):
    """No room was found within `throttle_timeout_s`. Nothing was stored, and trying again is safe."""

    waited_s: float
    text = "both tables are full, and no checkpoint made room within {waited_s:g} s; nothing was stored"


# the disk failing


@_with_fields
class StoreFailed(StoreError):
    """A write or a sync failed, so this store writes no more; `__cause__` is the first error.

    Acknowledged entries stay readable. Adds under way may be durable or not; the next opening decides it.
    """

    path: str

    def __str__(self) -> str:
        why = f" after {self.__cause__!r}" if self.__cause__ is not None else ""
        return (
            f"the store {self.path} has stopped writing{why}: "
            "what was acknowledged stays readable, and opening it again recovers"
        )

    def __reduce__(self) -> tuple[type[StoreFailed], tuple[str], dict[str, object]]:
        # Pickling forgets the cause, which is half of the message. Do not set a cause of None, because
        # setting any cause hides the context.
        cause = {"__cause__": self.__cause__} if self.__cause__ is not None else {}
        return type(self), (self.path,), {**self.__dict__, **cause}


NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The system's errors that become `DiskFull`."""


class DiskFull(StoreError, OSError):
    """There is no space on the store's file system. Nothing was stored, and adds resume when there is space.

    `reason` states the limit if adds are refused before the disk is full; otherwise it is empty.
    """

    def __init__(self, path: str, reason: str = "") -> None:
        super().__init__(errno.ENOSPC, "no space left on the device", path)
        self.path = path
        self.reason = reason

    def __str__(self) -> str:
        if self.reason:
            return f"{self.path} takes no adds: {self.reason}; nothing was stored"
        return f"no space left for {self.path}: nothing was stored, and adds resume when there is"

    def __reduce__(self) -> tuple[type[DiskFull], tuple[str, str]]:
        return type(self), (self.path, self.reason)


# durable bytes that are wrong


@_with_fields
class AnswerUnknown(StoreError):
    """It was not found, but it may have existed, because a part of this store was lost.

    Not a `KeyError`, because a program that treats the entry as missing would give up an entry that another
    copy may have.
    """

    ledger_id: int
    entry_id: int | None

    def __init__(self, ledger_id: int, entry_id: int | None = None) -> None:
        super().__init__(ledger_id, entry_id)

    def __str__(self) -> str:
        what = f"ledger {self.ledger_id}"
        what = what if self.entry_id is None else f"entry {self.entry_id} of {what}"
        return f"{what} was not found, but may have existed, because a part of this store was lost"


@_with_fields
class EntryUnreadable(StoreError):
    """The entry was acknowledged, and its bytes are damaged or cannot be read from the disk.

    Not a `KeyError`, because a program that treats missing entries as normal must not take it for missing.
    `file` is `None` if no file was read.
    """

    ledger_id: int
    entry_id: int
    reason: str
    file: str | None
    offset: int | None

    def __init__(
        self, ledger_id: int, entry_id: int, reason: str, file: str | None = None, offset: int | None = None
    ) -> None:
        super().__init__(ledger_id, entry_id, reason, file, offset)

    def __str__(self) -> str:
        place = f" at {self.file}@{self.offset}" if self.file is not None else ""
        return f"entry {self.entry_id} of ledger {self.ledger_id} is unreadable{place}: {self.reason}"


@_with_fields
class CorruptionError(StoreError):
    """Bytes that were known to be durable are wrong or gone; `finding` is the stable id of such damage."""

    file: str
    offset: int
    reason: str
    finding: str

    def __str__(self) -> str:
        hint = _COPY_HINT if self.finding in _AS_IN_A_LIVE_COPY else ""
        return f"{self.finding} {self.file}@{self.offset}: {self.reason}{hint}"


_AS_IN_A_LIVE_COPY = frozenset({"MRK-001", "MRK-002", "MRK-003", "ELG-005"})
"""Findings that a copy of a live store can cause: its files were copied at different moments, so a file may
lack what another file states about it."""

_COPY_HINT = (
    "; a copy of a store that was open while it was copied can look like this and is no backup: "
    "close the store before you copy it, or copy an atomic snapshot of the file system"
)
