"""The tree of errors: what each says, what it can be caught as, and how it reaches another process."""

from __future__ import annotations

import errno
import inspect
import pickle

import pytest

import storage
from storage import errors
from storage.errors import (
    AnswerUnknown,
    CorruptionError,
    DigestDiffers,
    DigestMismatch,
    DigestUnknown,
    DiskFull,
    EntryTooLarge,
    EntryUnreadable,
    ForeignStore,
    ForkedStore,
    InvalidConfig,
    InvalidEntry,
    InvalidFormat,
    LedgerFenced,
    LedgerUnproven,
    NewerFormat,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    OtherLoop,
    Overloaded,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreLocked,
    Unauthorized,
)

STOPPED = (
    "the store data has stopped writing: what was acknowledged stays readable, and opening it again recovers"
)
# Each with its attributes and its sentence.
SAMPLES: list[tuple[StoreError, dict[str, object], str]] = [
    (StoreError("x"), {}, "x"),
    (InvalidEntry("x"), {}, "x"),
    (
        EntryTooLarge(700, 640),
        {"size": 700, "limit": 640},
        "an entry of 700 bytes, head and digest included; the limit is 640",
    ),
    (
        DigestMismatch(42, 7),
        {"ledger_id": 42, "entry_id": 7},
        "the digest of entry 7 of ledger 42 does not belong to its bytes",
    ),
    (InvalidFormat("x"), {}, "x"),
    (
        InvalidConfig("journal_size", "-1 is too small"),
        {"name": "journal_size", "reason": "-1 is too small"},
        "journal_size: -1 is too small",
    ),
    (NoSuchLedger(42), {"ledger_id": 42}, "there is no ledger 42"),
    (NoSuchEntry(42, 7), {"ledger_id": 42, "entry_id": 7}, "ledger 42 has no entry 7"),
    (LedgerFenced(42), {"ledger_id": 42}, "ledger 42 is fenced: it takes no more entries"),
    (Unauthorized(42), {"ledger_id": 42}, "ledger 42 was made with another password"),
    (
        LedgerUnproven(42),
        {"ledger_id": 42},
        "no journal that is left holds the key of ledger 42: it can be read, and takes no more entries",
    ),
    (
        DigestDiffers(42, "MAC"),
        {"ledger_id": 42, "recorded": "MAC"},
        "the entries of ledger 42 are protected by MAC",
    ),
    (
        DigestUnknown(42),
        {"ledger_id": 42},
        "nothing tells the digest type of ledger 42: name it with digest=",
    ),
    (StoreLocked("data/LOCK", 12), {"path": "data/LOCK", "pid": 12}, "data/LOCK is in use by process 12"),
    (
        StoreLocked("data/LOCK", None),
        {"path": "data/LOCK", "pid": None},
        "data/LOCK is in use by another process",
    ),
    (
        NotAStore("data", "no VERSION in it"),
        {"path": "data", "reason": "no VERSION in it"},
        "data is not a store: no VERSION in it",
    ),
    (
        NewerFormat("data", "layout 6"),
        {"path": "data", "what": "layout 6"},
        "data was written by a newer version: layout 6",
    ),
    (
        ForeignStore("data", "5.txn has no salt"),
        {"path": "data", "reason": "5.txn has no salt"},
        "a bookie has written to data: 5.txn has no salt",
    ),
    (StoreClosed("data"), {"path": "data"}, "the store data is closed"),
    (
        ForkedStore("data"),
        {"path": "data"},
        "the store data was opened before a fork: only the process that opened it may use it",
    ),
    (
        OtherLoop("data"),
        {"path": "data"},
        "the store data was opened on another event loop: only there can it be awaited",
    ),
    (
        Overloaded(10.0),
        {"waited_s": 10.0},
        "both tables are full, and no checkpoint made room in 10 s: nothing was stored",
    ),
    (
        StoreFailed("data"),
        {"path": "data"},
        STOPPED,
    ),
    (
        DiskFull("data"),
        {"path": "data", "errno": errno.ENOSPC, "filename": "data"},
        "no space left for data: nothing was stored, and adds resume when there is",
    ),
    (
        AnswerUnknown(42, 7),
        {"ledger_id": 42, "entry_id": 7},
        "entry 7 of ledger 42 is not here, and may have been: something of this store was lost",
    ),
    (
        AnswerUnknown(42),
        {"ledger_id": 42, "entry_id": None},
        "ledger 42 is not here, and may have been: something of this store was lost",
    ),
    (
        EntryUnreadable(42, 7, "the digest does not match", "3.log", 4100),
        {
            "ledger_id": 42,
            "entry_id": 7,
            "reason": "the digest does not match",
            "file": "3.log",
            "offset": 4100,
        },
        "entry 7 of ledger 42 is unreadable at 3.log@4100: the digest does not match",
    ),
    (
        EntryUnreadable(42, 7, "the index is damaged"),
        {"file": None, "offset": None},
        "entry 7 of ledger 42 is unreadable: the index is damaged",
    ),
    (
        CorruptionError("5.txn", 8192, "the checksum does not match", "JRN-003"),
        {"file": "5.txn", "offset": 8192, "reason": "the checksum does not match", "finding": "JRN-003"},
        "JRN-003 5.txn@8192: the checksum does not match",
    ),
]
NAMES = [type(error).__name__ for error, _, _ in SAMPLES]
CLASSES = [
    thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__
]


@pytest.mark.parametrize(("error", "attributes", "sentence"), SAMPLES, ids=NAMES)
def test_an_error_says_what_it_carries(
    error: StoreError, attributes: dict[str, object], sentence: str
) -> None:
    assert str(error) == sentence
    assert {name: getattr(error, name) for name in attributes} == attributes


@pytest.mark.parametrize(("error", "attributes", "sentence"), SAMPLES, ids=NAMES)
def test_an_error_reaches_another_process_whole(
    error: StoreError, attributes: dict[str, object], sentence: str
) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == sentence
    assert {name: getattr(copy, name) for name in attributes} == attributes
    assert copy.__cause__ is None
    assert copy.__suppress_context__ is False


def test_no_error_is_left_out_of_these_tests() -> None:
    assert {type(error) for error, _, _ in SAMPLES} == set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_has_one_root_a_place_in_the_drawn_tree_and_a_public_name(kind: type[Exception]) -> None:
    assert issubclass(kind, StoreError)
    tree = errors.__doc__ or ""
    assert kind is StoreError or f"── {kind.__name__} " in tree
    assert getattr(storage, kind.__name__) is kind


def test_what_is_missing_is_a_key_error_and_what_is_damaged_never() -> None:
    assert isinstance(NoSuchLedger(1), KeyError)
    assert isinstance(NoSuchEntry(1, 2), KeyError)
    assert not isinstance(EntryUnreadable(1, 2, ""), LookupError)
    assert not isinstance(AnswerUnknown(1, 2), LookupError)


def test_a_bad_argument_is_a_value_error() -> None:
    assert isinstance(InvalidConfig("a", "b"), ValueError)
    assert isinstance(EntryTooLarge(2, 1), InvalidEntry)
    assert isinstance(EntryTooLarge(2, 1), ValueError)
    assert isinstance(DigestMismatch(1, 2), InvalidEntry)
    assert isinstance(DigestDiffers(1, "MAC"), ValueError)
    assert isinstance(DigestUnknown(1), ValueError)


def test_who_cannot_prove_to_be_the_writer_is_unauthorized() -> None:
    assert isinstance(LedgerUnproven(1), Unauthorized)


def test_a_full_disk_can_be_caught_as_the_system_s_error() -> None:
    with pytest.raises(OSError, match="no space left for data") as full:
        raise DiskFull("data")
    assert full.value.errno == errno.ENOSPC


def test_a_failed_store_tells_its_first_error_in_another_process_too() -> None:
    failed = StoreFailed("data")
    failed.__cause__ = OSError(errno.EIO, "Input/output error")
    copy = pickle.loads(pickle.dumps(failed))
    assert isinstance(copy.__cause__, OSError)
    assert copy.__cause__.errno == errno.EIO
    assert "stopped writing after OSError(5, 'Input/output error'): " in str(failed)
    assert str(copy) == str(failed)
