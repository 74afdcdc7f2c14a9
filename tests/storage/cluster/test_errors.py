"""The errors of a cluster: messages, codes, base classes, and that pickling keeps their fields."""

from __future__ import annotations

import inspect
import pickle

import pytest

from storage.cluster import errors
from storage.cluster.errors import (
    AddOutcomeUnknown,
    AddQuorumTimeout,
    BookieRegistered,
    BookiesRegistered,
    ClientClosed,
    ClusterError,
    ClusterExists,
    ClusterNotNamed,
    CookieRefused,
    CopiesUnreadable,
    EnsembleChangesExhausted,
    EntriesNotForced,
    ForceIncomplete,
    ForkedClient,
    InvalidMetadata,
    InvalidMetadataUri,
    InvalidQuorums,
    LastAddConfirmedUnknown,
    LedgerClosed,
    LedgerCutShort,
    LedgerExists,
    LedgerIdOverflow,
    LedgerNotClosed,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchBookie,
    NoSuchCluster,
    NoSuchLedgerExistsOnMetadataServer,
    NotEnoughBookies,
    NotEnoughZones,
    OutcomeUnknown,
    RecoveryIncomplete,
    ReplicationStateUnchanged,
    SessionExpired,
    UnauthorizedAccess,
    WriterFenced,
)
from storage.errors import LedgerFenced, StoreError, Unauthorized

# Each error with the code of BookKeeper's exception and its message.
SAMPLES: list[tuple[ClusterError, int, str]] = [
    (ClusterError("x"), -999, "x"),
    (InvalidMetadataUri("a:b", "no zk:// address"), -14, "a:b: no zk:// address"),
    (
        NoSuchCluster("/ledgers"),
        -9,
        "there is no cluster at /ledgers: the node is missing (`ledgerstore cluster init` makes one)",
    ),
    (ClusterExists("/ledgers"), -999, "/ledgers exists already: nothing was changed"),
    (
        ClusterNotNamed("/ledgers", "5b2e", "5b2f"),
        -14,
        "/ledgers belongs to the instance 5b2e, and '5b2f' was named: nothing was changed",
    ),
    (
        ClusterNotNamed("/ledgers", "5b2e", None),
        -14,
        "/ledgers belongs to the instance 5b2e, and no instance was named: nothing was changed",
    ),
    (
        BookiesRegistered("/ledgers", ("bk1", "bk2")),
        -999,
        "/ledgers: bookies are still registered, stop them first: bk1, bk2",
    ),
    (
        NoSuchBookie("/ledgers", "bk9", ("bk1", "bk2")),
        -8,
        "/ledgers knows no bookie bk9; it knows: bk1, bk2",
    ),
    (
        InvalidQuorums(2, 3, 2),
        -14,
        (
            "ensemble 2, write quorum 3, ack quorum 2: each has to be at least as large as the next, and the "
            "last at least 1"
        ),
    ),
    (LedgerExists(7), -20, "there is a ledger 7 already"),
    (NoSuchLedgerExistsOnMetadataServer(7), -25, "the metadata has no ledger 7"),
    (
        MetadataConflict("/ledgers/00/0000/L0007", "it was closed by another client"),
        -17,
        "/ledgers/00/0000/L0007: it was closed by another client",
    ),
    (LedgerIdOverflow("/ledgers/idgen-long"), -106, "/ledgers/idgen-long has given out its last ledger id"),
    (
        BookieRegistered("/ledgers/available/bk1", 255),
        -106,
        "/ledgers/available/bk1 belongs to the session 0xff of another process",
    ),
    (CookieRefused("bk1", "its disk is empty"), -102, "bookie bk1 must not start: its disk is empty"),
    (
        ReplicationStateUnchanged("/ledgers/underreplication/disable", "disabled"),
        -200,
        "/ledgers/underreplication/disable: replication is already disabled",
    ),
    (LedgerClosed(7), -11, "ledger 7 is closed: it takes no more entries"),
    (
        LedgerNotClosed(7),
        -999,
        "ledger 7 is not closed: a client may still write it (`take_over` closes it)",
    ),
    (ClientClosed(), -19, "the client of the cluster was closed"),
    (ForkedClient(), -999, "it was opened before a fork; only the process that opened it may use it"),
    (WriterFenced(7), -101, "ledger 7 was taken over by another client: this writer adds no more"),
    (UnauthorizedAccess(7), -102, "ledger 7 was made with another password"),
    (
        NotEnoughBookies(3, 2, {"north": 1, "south": 1}),
        -6,
        "3 bookies are needed, 2 can be used (bookies that take adds: 1 in zone north, 1 in zone south)",
    ),
    (
        NotEnoughBookies(1, 0, {}),
        -6,
        "1 bookies are needed, 0 can be used (bookies that take adds: none)",
    ),
    (
        NotEnoughZones(3, 1, {"north": 2}, 2),
        -6,
        (
            "each entry needs copies in 2 zones: 3 bookies are needed, 1 can be used "
            "(bookies that take adds: 2 in zone north)"
        ),
    ),
    (
        EnsembleChangesExhausted(7, 100),
        -12,
        "ledger 7: 100 changes of the ensemble, and no entry was acknowledged meanwhile",
    ),
    (AddQuorumTimeout(7, 3, 2.5), -21, "ledger 7: entry 3 has too few copies after 2.5 s"),
    (
        ForceIncomplete(7, 3, {"b1": "timed out"}),
        -12,
        "ledger 7: entries up to 3 are not forced (b1: timed out)",
    ),
    (
        EntriesNotForced(7, "b1", 3),
        -12,
        (
            "ledger 7: bookie b1 has failed, and may have lost entries after 3, which were not forced: "
            "this writer adds no more (`take_over` keeps what it finds)"
        ),
    ),
    (
        LastAddConfirmedUnknown(7, {"b1": "timed out"}),
        -10,
        "the last add confirmed of ledger 7 is not known (b1: timed out)",
    ),
    (
        RecoveryIncomplete(7, "the fence", ("b1", "b2")),
        -10,
        "ledger 7 cannot be recovered now: the fence (no useful answer: b1, b2)",
    ),
    (
        CopiesUnreadable(7, 3, {"b1": "timed out", "b2": "wrong digest"}),
        -1,
        "no copy of entry 3 of ledger 7 can be read (b1: timed out, b2: wrong digest)",
    ),
    (
        LedgerCutShort(7, 3, 4),
        -10,
        "ledger 7 was closed after entry 3, but entry 4 was shown to a reader",
    ),
    (
        AddOutcomeUnknown("ledger 7, entry 3", "it is fenced"),
        -12,
        "ledger 7, entry 3: not acknowledged, and a recovery of the ledger may keep them: it is fenced",
    ),
    (MetadataUnavailable("refused"), -9, "the metadata service does not answer: refused"),
    (
        SessionExpired("no answer for 10 s"),
        -9,
        "the session with the metadata service has expired: no answer for 10 s",
    ),
    (
        OutcomeUnknown("/ledgers", "the connection was lost"),
        -9,
        "/ledgers: it is not known whether the write took place: the connection was lost",
    ),
    (InvalidMetadata("/ledgers/LAYOUT", "no number"), -107, "/ledgers/LAYOUT: no number"),
]
CLASSES = [
    thing for _, thing in inspect.getmembers(errors, inspect.isclass) if thing.__module__ == errors.__name__
]


@pytest.mark.parametrize(("error", "code", "sentence"), SAMPLES, ids=lambda value: type(value).__name__)
def test_an_error_has_bookkeeper_s_code_and_says_what_is_wrong(
    error: ClusterError, code: int, sentence: str
) -> None:
    assert (error.code, str(error)) == (code, sentence)


@pytest.mark.parametrize("error", [error for error, _, _ in SAMPLES], ids=lambda error: type(error).__name__)
def test_pickling_keeps_an_error_s_message_and_fields(error: ClusterError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.args) == (type(error), str(error), error.args)
    assert all(getattr(copy, name) == getattr(error, name) for name in error.fields)


def test_no_error_is_left_out_of_these_tests() -> None:
    assert {type(error) for error, _, _ in SAMPLES} == set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_of_a_cluster_is_a_store_error_and_is_drawn_in_the_tree(kind: type[Exception]) -> None:
    assert issubclass(kind, ClusterError)
    assert issubclass(kind, StoreError)
    assert kind is ClusterError or f"── {kind.__name__} " in (errors.__doc__ or "")


def test_a_missing_ledger_is_a_key_error_and_an_expired_session_is_no_answer() -> None:
    assert isinstance(NoSuchLedgerExistsOnMetadataServer(1), KeyError)
    assert isinstance(SessionExpired("x"), MetadataUnavailable)


def test_the_errors_of_a_ledger_over_several_bookies_are_also_those_of_a_local_ledger() -> None:
    assert isinstance(WriterFenced(1), LedgerFenced)
    assert isinstance(UnauthorizedAccess(1), Unauthorized)
    assert isinstance(InvalidMetadataUri("a", "b"), ValueError)
