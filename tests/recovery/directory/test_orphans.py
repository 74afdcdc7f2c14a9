"""What an opening removes, and what it leaves alone."""

from __future__ import annotations

from stepped_store import JOURNAL, LEDGERS, Site

from recovery.directory.layout import Layout
from recovery.directory.orphans import remove_drafts
from storage.disk import filenames

DRAFTS = [f"{JOURNAL}/7.txn.draft", f"{LEDGERS}/{filenames.LAST_MARK}.draft"]


def used() -> Site:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"x")
    site.checkpoint(store)
    store.ledger(1).append(b"y")
    return site


def names(site: Site) -> list[str]:
    return sorted([*site.names(JOURNAL), *site.names(LEDGERS)])


def test_only_drafts_are_removed_to_make_room() -> None:
    site = used()
    site.disk.kill()
    layout = Layout(site.disk.root())
    remove_drafts(layout)
    before = names(site)
    assert not remove_drafts(layout)
    for draft in DRAFTS:
        site.put(draft, b"unfinished")
    assert remove_drafts(layout)
    assert names(site) == before


def test_an_opening_names_the_files_that_no_store_writes_and_no_others() -> None:
    site = used()
    site.put(f"{LEDGERS}/notes", b"of a person")
    site.put(f"{JOURNAL}/again", b"of a person")
    report = site.after_kill().opened
    assert report.unknown == ("again", "notes")
    assert set(report.removed) <= {"1.txn.draft", "2.txn.draft"}
