"""The report of an opening."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from storage.open_report import IndexFound, OpenReport, ReplayProgress, TornTail

QUIET = OpenReport(created=False, index=IndexFound.GOOD, seconds=0.004)
EVENTFUL = OpenReport(
    created=False,
    index=IndexFound.AHEAD,
    seconds=1.257,
    journals_read=2,
    records_replayed=12_345,
    bytes_replayed=6_000_001,
    records_carried=1,
    torn=(
        TornTail("19b.txn", 8192, 4096, "quarantine/19b.txn-8192"),
        TornTail("19c.txn", 512, 1),
    ),
    removed=("19d.txn.draft", "4.log"),
    unknown=("notes.txt",),
    findings=("ELG-004 3.log@4096: a hole",),
)


def test_the_report_of_an_uneventful_opening_has_three_lines() -> None:
    assert str(QUIET) == "opened in 0.00 s\nnothing to replay\nindex: good"


def test_the_report_of_an_eventful_opening_has_a_line_for_each_event() -> None:
    assert str(EVENTFUL).splitlines() == [
        "opened in 1.26 s",
        "replayed 12,345 records (6,000,001 bytes) from 2 journals",
        "index: ahead of the mark: its commit had been the last step of a checkpoint",
        "written again, not proven durable: 1 record",
        "torn tail, ambiguous: 19b.txn@8192, 4,096 bytes, saved as quarantine/19b.txn-8192",
        "torn tail, ambiguous: 19c.txn@512, 1 byte",
        "removed: 19d.txn.draft, 4.log",
        "unknown, kept: notes.txt",
        "finding: ELG-004 3.log@4096: a hole",
    ]


def test_the_report_of_a_new_store() -> None:
    made = replace(QUIET, created=True, index=IndexFound.MADE)
    assert str(made).splitlines()[0] == "created in 0.00 s"
    assert "index: made" in str(made)


def test_a_report_must_state_what_was_not_counted() -> None:
    with pytest.raises(TypeError):
        OpenReport(created=False, index=IndexFound.GOOD)  # type: ignore[call-arg]


def test_a_report_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(EVENTFUL)) == EVENTFUL
    assert hash(EVENTFUL) == hash(replace(EVENTFUL))
    with pytest.raises(AttributeError):
        EVENTFUL.seconds = 0.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("done", "total", "fraction"), [(0, 400, 0.0), (100, 400, 0.25), (400, 400, 1.0), (0, 0, 1.0)]
)
def test_progress_is_a_fraction_and_nothing_to_do_is_all_done(done: int, total: int, fraction: float) -> None:
    assert ReplayProgress(done, total, records=3).fraction == fraction
