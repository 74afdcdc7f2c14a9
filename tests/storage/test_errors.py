"""The tree of errors: the message of each, its base classes, and that pickling keeps its fields."""

from __future__ import annotations

import errno
import inspect
import pickle

import pytest

import storage
from storage import errors
from storage.errors import (
    AlreadyOpen,
    AnswerUnknown,
    CorruptionError,
    DigestDiffers,
    DigestMismatch,
    DigestUnknown,
    DiskFull,
    EntryTooLarge,
    EntryTruncated,
    EntryUnreadable,
    ForeignStore,
    ForkedStore,
    InvalidConfig,
    InvalidEntry,
    InvalidFormat,
    LacBeyondEnd,
    LedgerFenced,
    LedgerUnproven,
    NewerFormat,
    NoSuchEntry,
    NoSuchLedger,
    NotAStore,
    OtherLoop,
    Overloaded,
    ReentrantCall,
    StoreClosed,
    StoreError,
    StoreFailed,
    StoreLocked,
    Unauthorized,
)

STOPPED = (
    "the store data has stopped writing: what was acknowledged stays readable, and opening it again recovers"
)
# Each error with its attributes and its message.
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
        "the digest of entry 7 of ledger 42 does not match its bytes",
    ),
    (InvalidFormat("x"), {}, "x"),
    (
        InvalidConfig("journal_size", "-1 is too small"),
        {"name": "journal_size", "reason": "-1 is too small"},
        "journal_size: -1 is too small",
    ),
    (NoSuchLedger(42), {"ledger_id": 42}, "there is no ledger 42"),
    (NoSuchEntry(42, 7), {"ledger_id": 42, "entry_id": 7}, "ledger 42 has no entry 7"),
    (
        EntryTruncated(42, 7, 9),
        {"ledger_id": 42, "entry_id": 7, "first_entry_id": 9},
        "entry 7 of ledger 42 was truncated: its entries begin at 9",
    ),
    (LedgerFenced(42), {"ledger_id": 42}, "ledger 42 is fenced: it takes no more entries"),
    (Unauthorized(42), {"ledger_id": 42}, "ledger 42 was made with another password"),
    (
        LedgerUnproven(42),
        {"ledger_id": 42},
        "no remaining journal holds the key of ledger 42, so the ledger can only be read",
    ),
    (
        DigestDiffers(42, "MAC"),
        {"ledger_id": 42, "recorded": "MAC"},
        "the entries of ledger 42 are protected by MAC",
    ),
    (
        DigestUnknown(42),
        {"ledger_id": 42},
        "the digest type of ledger 42 is not known: pass it as digest=",
    ),
    (
        LacBeyondEnd(42, 9, 7),
        {"ledger_id": 42, "last_add_confirmed": 9, "last_entry_id": 7},
        "ledger 42 ends at entry 7, so entry 9 cannot be confirmed",
    ),
    (
        LacBeyondEnd(42, 0, None),
        {"last_entry_id": None},
        "ledger 42 has no entry, so entry 0 cannot be confirmed",
    ),
    (
        AlreadyOpen("data/LOCK", 12),
        {"path": "data/LOCK", "pid": 12},
        (
            "data/LOCK is already open in this process, 12: close the store or view that has it open "
            "(one that was never closed stays open), or use that one"
        ),
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
        "the store data was opened before a fork; only the process that opened it may use it",
    ),
    (
        ReentrantCall("data"),
        {"path": "data"},
        "a signal handler must not add to data: its thread is inside an add to it",
    ),
    (
        OtherLoop("data"),
        {"path": "data"},
        "the store data was opened on another event loop and can only be awaited there",
    ),
    (
        Overloaded(10.0),
        {"waited_s": 10.0},
        "both tables are full, and no checkpoint made room within 10 s; nothing was stored",
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
        "entry 7 of ledger 42 was not found, but may have existed, because a part of this store was lost",
    ),
    (
        AnswerUnknown(42),
        {"ledger_id": 42, "entry_id": None},
        "ledger 42 was not found, but may have existed, because a part of this store was lost",
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
    (
        CorruptionError("5.txn", 0, "missing", "MRK-002"),
        {"reason": "missing"},
        (
            "MRK-002 5.txn@0: missing; a copy of a store that was open while it was copied can look like "
            "this and is no backup: "
            "close the store before you copy it, or copy an atomic snapshot of the file system"
        ),
    ),
]
NAMES = [type(error).__name__ for error, _, _ in SAMPLES]
CLASSES = [
    thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__
]


@pytest.mark.parametrize(("error", "attributes", "sentence"), SAMPLES, ids=NAMES)
def test_the_message_of_an_error_states_its_fields(
    error: StoreError, attributes: dict[str, object], sentence: str
) -> None:
    assert str(error) == sentence
    assert {name: getattr(error, name) for name in attributes} == attributes


@pytest.mark.parametrize(("error", "attributes", "sentence"), SAMPLES, ids=NAMES)
def test_pickling_keeps_an_error_s_type_message_and_fields(
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
def test_every_error_has_one_root_a_line_in_the_drawn_tree_and_a_public_name(kind: type[Exception]) -> None:
    assert issubclass(kind, StoreError)
    tree = errors.__doc__ or ""
    assert kind is StoreError or f"── {kind.__name__} " in tree
    assert getattr(storage, kind.__name__) is kind


def test_missing_is_a_key_error_and_damaged_is_not() -> None:
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


def test_an_unproven_ledger_is_an_authorization_error() -> None:
    assert isinstance(LedgerUnproven(1), Unauthorized)


@pytest.mark.parametrize(("error", "attributes", "sentence"), SAMPLES, ids=NAMES)
def test_args_are_the_fields_in_their_order(
    error: StoreError, attributes: dict[str, object], sentence: str
) -> None:
    del attributes, sentence
    if error.fields:
        assert error.args == tuple(getattr(error, name) for name in error.fields)
        assert repr(error) == f"{type(error).__name__}{error.args!r}".replace(",)", ")")


def test_arguments_that_are_left_out_or_named_are_in_args() -> None:
    assert repr(AnswerUnknown(42)) == "AnswerUnknown(42, None)"
    assert repr(EntryUnreadable(42, 7, reason="gone", file="3.log")) == (
        "EntryUnreadable(42, 7, 'gone', '3.log', None)"
    )


def test_an_error_has_no_other_attributes() -> None:
    assert not hasattr(NoSuchEntry(42, 7), "reason")
    assert not hasattr(InvalidEntry("x"), "ledger_id")


def test_a_full_disk_can_be_caught_as_the_system_s_error() -> None:
    with pytest.raises(OSError, match="no space left for data") as full:
        raise DiskFull("data")
    assert full.value.errno == errno.ENOSPC


def test_pickling_a_store_failed_keeps_its_cause() -> None:
    failed = StoreFailed("data")
    failed.__cause__ = OSError(errno.EIO, "Input/output error")
    copy = pickle.loads(pickle.dumps(failed))
    assert isinstance(copy.__cause__, OSError)
    assert copy.__cause__.errno == errno.EIO
    assert "stopped writing after OSError(5, 'Input/output error'): " in str(failed)
    assert str(copy) == str(failed)
