"""The findings about logs that are missing, with what the lineage says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from audit_reports import MadeLog, runs, runs_of
from run_tables import answers_of

from recovery.audit.checks import log_rules
from recovery.audit.checks.store_checks import StoreAnswers
from recovery.audit.findings.finding import Severity
from recovery.audit.model.scan_results import MapRecord
from recovery.audit.model.store_facts import DirectoryOwner, IndexFacts, LogFacts, StoreFacts
from storage.checkpoint.mark_format import Mark, Trailer
from storage.entry.position import START, LogPosition
from storage.entry.read_result import Damaged, EndOfData, Flaw
from storage.entrylog.format import LogHeader, Origin
from storage.entrylog.lineage import NoLineage
from storage.entrylog.lineage_format import Lineage
from storage.index.port import NoIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterable

STORE_ID = bytes(16)
END = 8192
DAMAGED = Damaged(0, Flaw.CHECKSUM)


def log(log_id: int, previous: int | None) -> LogFacts:
    """A sound log whose header names the log before it."""
    before = None if previous is None else LogPosition(previous, END)
    header = LogHeader(origin=Origin(STORE_ID, log_id, before))
    return LogFacts(log_id=log_id, file_size=END, header=header, limit=END, reach=END, stop=EndOfData(END))


def index(*log_ids: int, gone: Iterable[int] = ()) -> IndexFacts:
    return IndexFacts(IndexState(9, START, max(log_ids), dict.fromkeys(log_ids, END), gone=tuple(gone)))


def lineage(*log_ids: int, gone: Iterable[int] = (), generation: int = 8) -> Lineage:
    return Lineage(generation, tuple(LogPosition(one, END) for one in log_ids), tuple(gone))


def found(
    logs: Iterable[LogFacts],
    known: Lineage | NoLineage | Damaged,
    state: IndexFacts | NoIndex,
    owner: DirectoryOwner = DirectoryOwner.OURS,
) -> list[tuple[str, str, Severity]]:
    mark = Mark(START, Trailer(9, 1, LogPosition(4, END), 0))
    facts = StoreFacts(store="", owner=owner, mark=mark, logs=tuple(logs), index=state, lineage=known)
    return [
        (one.kind, one.file, one.severity)
        for one in log_rules.findings(facts, answers_of(facts, *runs_of(facts)))
    ]


WITHOUT_1 = (log(0, None), log(2, 1), log(3, 2))
"""Log 1 is missing."""


@pytest.mark.parametrize("state", [index(0, 2, 3), NoIndex()], ids=["index", "no index"])
def test_a_log_that_was_removed_is_not_missed(state: IndexFacts | NoIndex) -> None:
    assert found(WITHOUT_1, lineage(0, 2, 3), state) == []


def test_a_log_that_is_being_removed_is_not_missed_by_a_log_that_was_begun_since() -> None:
    logs = (log(0, None), log(3, 2))
    assert found(logs, lineage(0, gone=[2]), index(0, 3)) == []


@pytest.mark.parametrize("generation", [9, 12], ids=["interrupted", "later removals"])
def test_a_log_is_not_missed_if_the_log_that_names_it_is_removed_too(generation: int) -> None:
    # Log 1 was removed before. Log 2 names it, and is still in the index because that is older.
    assert found(WITHOUT_1, lineage(0, 3, gone=[2], generation=generation), index(0, 2, 3)) == []
    assert found(WITHOUT_1, lineage(0, 1, 3, gone=[2], generation=generation), index(0, 2, 3)) == [
        ("ELG-005", "1.log", Severity.ERROR)
    ]


@pytest.mark.parametrize("state", [index(0, 2, 3), NoIndex()], ids=["index", "no index"])
def test_without_a_lineage_the_log_is_missed(state: IndexFacts | NoIndex) -> None:
    assert found(WITHOUT_1, NoLineage(), state) == [("ELG-005", "1.log", Severity.ERROR)]


def test_a_log_that_the_lineage_does_not_leave_out_is_missed() -> None:
    # Once by the header of log 2, and once by the lineage, which an opening without an index needs.
    assert found(WITHOUT_1, lineage(0, 1, 2, 3), index(0, 2, 3)) == [("ELG-005", "1.log", Severity.ERROR)]
    assert set(found(WITHOUT_1, lineage(0, 1, 2, 3), NoIndex())) == {("ELG-005", "1.log", Severity.ERROR)}


def test_a_log_that_a_later_log_than_those_of_the_lineage_names_is_missed() -> None:
    logs = (log(0, None), log(4, 3))
    assert found(logs, lineage(0), index(0, 4)) == [("ELG-005", "3.log", Severity.ERROR)]


def test_a_log_that_the_lineage_names_is_missed_without_an_index() -> None:
    logs = (log(2, 1), log(3, 2))
    assert found(logs, lineage(0, 2, 3), NoIndex()) == [("ELG-005", "0.log", Severity.ERROR)]
    assert found(logs, lineage(0, 2, 3), index(2, 3)) == []


def test_a_damaged_lineage_is_a_warning_as_long_as_the_index_is_good() -> None:
    assert found(WITHOUT_1, DAMAGED, index(0, 2, 3)) == [("ELG-008", "lineage", Severity.WARNING)]
    assert found(WITHOUT_1, DAMAGED, NoIndex()) == [("ELG-008", "lineage", Severity.ERROR)]


def test_a_mark_that_is_older_than_the_lineage_is_an_error_without_an_index() -> None:
    later = lineage(0, 2, 3, generation=10)
    assert found(WITHOUT_1, later, NoIndex()) == [("MRK-003", "lastMark", Severity.ERROR)]
    assert found(WITHOUT_1, later, index(0, 2, 3)) == []


def test_in_a_bookie_s_directory_the_lineage_does_not_count() -> None:
    assert found(WITHOUT_1, DAMAGED, NoIndex(), DirectoryOwner.BOOKIE) == []


def test_a_removed_log_that_is_still_there_is_a_leftover() -> None:
    left = LogFacts(log_id=1, file_size=END, header=log(1, 0).header, is_leftover=True)
    for known, state in ((lineage(0, 2, gone=[1]), NoIndex()), (NoLineage(), index(0, 2, gone=[1]))):
        logs = (log(0, None), left, log(2, None))
        facts = StoreFacts(
            store="", owner=DirectoryOwner.OURS, mark=Mark(START), logs=logs, index=state, lineage=known
        )
        [finding] = log_rules.findings(facts, StoreAnswers())
        assert (finding.kind, finding.severity) == ("DIR-002", Severity.INFORMATION)
        assert "removal was interrupted" in finding.detail


# ── the ledgers map ──────────────────────────────────────────────────────────────────────────────────────


def sealed(map_offset: int, described: int) -> LogFacts:
    """A log with 100 bytes of ledger 7 before its durable end, and a map that describes so many."""
    header = LogHeader(1, map_offset, 1, Origin(STORE_ID, 1, None))
    record = MapRecord(map_offset, map_offset + 60, ((7, described),))
    return MadeLog(
        log_id=0,
        file_size=map_offset + 60,
        header=header,
        limit=END,
        reach=END,
        stop=EndOfData(map_offset + 60),
        runs=runs([(0, 7, 0, 0, 100)]),
        maps=(record,),
    )


@pytest.mark.parametrize(
    ("map_offset", "described", "kinds"),
    [
        (END, 100, []),
        (END, 149, ["ELG-002"]),
        (END, 51, ["ELG-002"]),
        # The log was filled and sealed by a checkpoint that had not ended when the index was read.
        (END + 4096, 149, []),
        (END + 4096, 51, ["ELG-002"]),
    ],
)
def test_a_map_may_describe_records_after_the_durable_end(
    map_offset: int, described: int, kinds: list[str]
) -> None:
    found_kinds = [kind for kind, _, _ in found([sealed(map_offset, described)], NoLineage(), index(0))]
    assert found_kinds == kinds
