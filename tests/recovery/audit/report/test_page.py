"""The audit's page contains all findings and all limits, and texts from files cannot break it."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser

import audit_reports
import pytest

from recovery.audit.findings.catalogue import KINDS
from recovery.audit.history.finding_history import NO_HISTORY, continued
from recovery.audit.model.audit_report import AuditReport, Check
from recovery.audit.model.store_facts import BookieIndexFacts, DirectoryOwner
from recovery.audit.report import commands, figures, page, top
from recovery.audit.report.files import files

HOSTILE = '<script>alert("1")</script>&\'\u202e\x1b[31m\udcff\x00'
VOID = {"meta"}


class Page(HTMLParser):
    """A page as a browser parses it: balanced elements, words, attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.open: list[str] = []
        self.words = ""
        self.attributes: list[tuple[str, str]] = []
        self.elements: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words += f" {data.strip()} " if data.strip() else ""

    def values(self, name: str) -> list[str]:
        return [value for found, value in self.attributes if found == name]


@cache
def damaged() -> Page:
    return Page(page.render(audit_reports.report(audit_reports.damaged())))


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(audit_reports.sound(), id="sound"),
        pytest.param(audit_reports.report(audit_reports.damaged()), id="damaged"),
        pytest.param(audit_reports.several(), id="several"),
        pytest.param(audit_reports.report(), id="no store"),
        pytest.param(audit_reports.report(audit_reports.store()), id="no logs"),
        pytest.param(audit_reports.report(audit_reports.store(owner=DirectoryOwner.BOOKIE)), id="no index"),
        pytest.param(
            audit_reports.report(audit_reports.store(logs=[audit_reports.log(0, 0, [])])), id="empty log"
        ),
    ],
)
def test_every_page_is_in_balance_and_the_same_twice(report: AuditReport) -> None:
    source = page.render(report)
    assert Page(source).elements.count("html") == 1
    assert source == page.render(report)


def test_nothing_is_fetched_and_only_our_script_may_run() -> None:
    shown = damaged()
    assert not re.search(r"https?://|@import|url\(", shown.source)
    assert not {"src", "srcset", "onclick", "onload"} & {name for name, _ in shown.attributes}
    assert all(href.startswith("#") for href in shown.values("href"))
    [policy] = [value for value in shown.values("content") if "default-src" in value]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_every_link_leads_to_a_place_on_the_page() -> None:
    shown = Page(page.render(audit_reports.several()))
    places = shown.values("id")
    assert len(places) == len(set(places))
    assert {href[1:] for href in shown.values("href")} <= set(places)


def test_each_finding_has_its_place_its_cause_its_remedy_and_a_command() -> None:
    shown = damaged()
    for finding in audit_reports.damaged().findings:
        kind = KINDS[finding.kind]
        assert kind.title in shown.words
        for part in (*kind.cause.split("`"), *kind.remedy.split("`"), finding.place, finding.detail):
            assert part in shown.words
        assert commands.command(finding) in shown.words


def test_the_verdict_counts_errors_or_without_errors_warnings() -> None:
    assert re.search(r" 6 +errors and 1 warning in 13 files ", damaged().words)
    store = audit_reports.store(found=[KINDS["ELG-002"].at(store="/data/store", file="0.log")])
    assert re.search(r" 1 +warning and no error in ", Page(page.render(audit_reports.report(store))).words)
    assert re.search(r" 0 +errors in 12 files ", Page(page.render(audit_reports.sound())).words)


def test_unverified_data_is_shown_before_verified_data() -> None:
    words = damaged().words
    gaps = words.index("What this audit does not cover")
    assert gaps < words.index("Files, and where something")
    for label in ("UNVERIFIED", "NOT COVERED", "NOT RUN"):
        assert gaps < words.index(label) < words.index("Files, and where something")
    assert "6.log after byte 4,812,032: it was being written" in words
    assert "no ensembles were given" in words
    assert "says nothing about" not in Page(page.render(audit_reports.sound())).words


def test_bytes_that_were_not_read_again_are_shown() -> None:
    report = replace(audit_reports.sound(), bytes_reused=3 << 30)
    words = Page(page.render(report)).words
    assert "NOT READ AGAIN" in words
    assert "3.0 GiB" in words


def test_texts_from_files_cannot_break_the_page() -> None:
    found = [
        KINDS["ELG-003"].at(store=HOSTILE, file=HOSTILE, offset=1, detail=HOSTILE),
        KINDS["DIR-001"].at(store=HOSTILE, file=HOSTILE),
    ]
    checks = [Check("x", HOSTILE, "not run", HOSTILE)]
    store = audit_reports.store(
        HOSTILE, [audit_reports.log(0, 99, [(1, 50)])], found, checks=checks, not_covered=[HOSTILE]
    )
    source = page.render(audit_reports.report(store, engine=HOSTILE, argv=(HOSTILE,)))
    shown = Page(source)
    assert shown.elements.count("script") == 1
    assert "<script>alert" in shown.words
    assert not re.search("[\u202e\x1b\udcff\x00]", source)


@pytest.mark.slow
def test_of_ten_thousand_findings_some_are_left_out_and_the_page_says_so() -> None:
    report = audit_reports.large()
    shown = Page(page.render(report))
    assert len(shown.source) < 2_000_000
    assert " 10,000  entries" in shown.words.replace("10,000 entries", "10,000  entries")
    assert re.search(r"9,\d\d\d more are not on this page: all are in findings.parquet", shown.words)
    assert re.search(r"Entry logs \(1,500\)", shown.words)


@pytest.mark.slow
def test_of_many_ledgers_the_largest_are_listed_and_the_rest_is_one_sum() -> None:
    words = Page(page.render(audit_reports.large(findings=3, logs=1500))).words
    assert re.search(r"and 58 more: .* in smaller ledgers", words)
    assert "70 ledgers" in words


def test_live_and_dead_bytes_come_from_the_index_and_are_unknown_without_one() -> None:
    ours = figures.by_log(audit_reports.damaged())
    assert [log.dead for log in ours] == [0, *(number * 3 << 20 for number in range(1, 6)), 0]
    assert all(log.live + (log.dead or 0) == log.size for log in ours)
    bookie = audit_reports.damaged(owner=DirectoryOwner.BOOKIE)
    assert {log.dead for log in figures.by_log(bookie)} == {None}
    assert (
        "is not known, because a bookie's index is not read"
        in Page(page.render(audit_reports.report(bookie))).words
    )


def test_copies_are_counted_by_store_and_by_ledger() -> None:
    shown = Page(page.render(audit_reports.replicated()))
    assert "21,747 of 22,100 entries, 353 lacking" in shown.words
    assert "22,050 of 22,050 entries, 9 beside" in shown.words
    assert "1 of 3 ledgers with all of them" in shown.words
    words = re.sub(" +", " ", shown.words)
    assert "ledger 9 8,253 entries, 250 with 1 of 2 copies, 3 without any copy" in words
    assert words.index("ledger 9 8,253") < words.index("ledger 7 5,000") < words.index("ledger 8 20,000")
    assert "replicas: bk2: 1 ledger that no ensemble names" in words
    assert "Replicas" not in damaged().words


def test_a_finding_about_replicas_counts_for_its_store() -> None:
    words = re.sub(" +", " ", Page(page.render(audit_reports.replicated())).words)
    assert "/data/bk1 ledgerstore 1 0 1 2" in words
    assert "/data/bk3 ledgerstore 0 0 1 2" in words


def test_a_wrong_password_is_shown() -> None:
    words = Page(page.render(replace(audit_reports.sound(), wrong_password_ledgers=(12,)))).words
    assert "the password of ledger 12 is wrong: its entries stay unverified" in words
    assert not figures.is_clean(replace(audit_reports.sound(), wrong_password_ledgers=(12,)))


@pytest.mark.slow
def test_of_very_many_stores_only_the_first_are_drawn_and_the_page_says_so() -> None:
    stores = [
        audit_reports.store(f"/data/{number}", [audit_reports.log(0, 99, [(1, 50)])]) for number in range(50)
    ]
    words = Page(page.render(audit_reports.report(*stores))).words
    assert "and 10 more stores: their findings are below, and in findings.parquet" in words
    assert "and 30 more stores: see runs.parquet" in words


def test_files_with_findings_are_listed_the_gravest_first() -> None:
    found = [
        KINDS["ELG-002"].at(store="/s", file="1.log"),
        KINDS["ELG-003"].at(store="/s", file="0.log", offset=9000, ledger_id=4),
        KINDS["ELG-004"].at(store="/s", file="0.log", offset=12),
        KINDS["LGR-007"].at(store="/s", file="2.log"),
        KINDS["DIR-001"].at(store="/s", file="notes"),
    ]
    logs = [audit_reports.log(number, 900, [(4, 500)]) for number in range(3)]
    shown = files(audit_reports.store("/s", logs, found))
    assert [(one.name, one.size, one.found.errors, one.first.offset) for one in shown.rows] == [
        ("0.log", 900, 2, 12),
        ("1.log", 900, 0, None),
        ("notes", None, 0, None),
    ]
    assert shown.rows[0].titles == ("hole in an entry log", "digest of an entry")
    assert dict(shown.kinds) == {"Journals": 2, "Entry logs": 3, "Index": 1, "Other files": 1}
    words = re.sub(
        " +", " ", Page(page.render(audit_reports.report(audit_reports.store("/s", logs, found)))).words
    )
    assert re.search(r"0\.log 900 \S+ 2 0\.log@12 hole in an entry log, digest of an entry", words)
    assert "4 files without a finding" in words


def test_each_of_several_stores_has_its_row_and_its_files() -> None:
    words = Page(page.render(audit_reports.several())).words
    for name in ("/data/one", "/data/bookie two", "/data/store"):
        assert words.count(name) >= 3
    assert "6 passed" not in words
    assert "2 failed" in words


def test_ledgers_that_lost_entries_are_not_drawn_as_verified() -> None:
    found = [
        KINDS["ELG-007"].at(store="/s", file="0.log", ledger_id=one, first_entry=0, last_entry=57, count=58)
        for one in (4, 5)
    ]
    store = audit_reports.store("/s", [audit_reports.log(0, 900, [(4, 500), (6, 300)])], found)
    assert {one.ledger_id: one.bad for one in figures.by_ledger(store)} == {4: 58, 5: 58, 6: 0}
    words = Page(page.render(audit_reports.report(store))).words
    assert "Nothing is left in the logs of 1 ledger: 5" in words


def test_what_an_operator_needs_stands_before_the_details() -> None:
    words = Page(page.render(audit_reports.replicated())).words
    order = [
        words.index(part)
        for part in (
            "without a sound copy",
            "What to do first",
            "What can be repaired, and from where",
            "What this audit does not cover",
            "Findings",
        )
    ]
    assert order == sorted(order)
    assert re.search(r" 3 +entries without a sound copy", words)
    assert re.search(r" 350 +entries with one sound copy left", words)


def test_limits_with_the_same_reason_are_one() -> None:
    checks = [Check("index", "the index is whole", "not run", "the bookie keeps no index in RocksDB")]
    stores = [
        audit_reports.store(
            f"/data/{number}", owner=DirectoryOwner.BOOKIE, checks=checks, not_covered=["the index"]
        )
        for number in range(15)
    ]
    gaps = top.gaps(audit_reports.report(*stores))
    assert [(one.label, len(one.stores)) for one in gaps] == [("NOT COVERED", 15), ("NOT RUN", 15)]


def test_no_all_clear_stands_over_bookies_of_which_no_index_was_read() -> None:
    bookie = audit_reports.store("/b", owner=DirectoryOwner.BOOKIE)
    assert "Whether a log is missing is not known" in top.headline(audit_reports.report(bookie)).meaning
    indexed = replace(bookie, facts=replace(bookie.facts, bookie_index=BookieIndexFacts()))
    assert "where it should be" in top.headline(audit_reports.report(indexed)).meaning


def test_findings_say_since_when_they_are_known() -> None:
    report = audit_reports.report(audit_reports.damaged())
    before = replace(report, ended="2026-01-02T00:00:00+00:00")
    history = continued(continued(NO_HISTORY, before), report)
    assert "2026-01-02" in Page(page.render(report, history)).words
