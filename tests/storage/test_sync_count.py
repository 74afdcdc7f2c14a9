"""The cost of an acknowledgement: one sync of the journal for a group, and no sync of another file."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from stepped_store import JOURNAL, Site

from recovery.crashlab import SimulatedDisk, Verb
from recovery.crashlab.model.operations import SYNCING
from storage import DiskFull, StoreConfig
from storage.disk import filenames
from storage.disk.filenames import FileKind

if TYPE_CHECKING:
    from storage.ledger import Ledger

PAYLOAD = bytes(1024)
LARGE_TABLE = StoreConfig(
    journal_size=16 << 20, memtable_size_max=1 << 30, checkpoint_interval_s=None, idle_seal_s=None
)


@pytest.fixture
def site() -> Site:
    return Site(StoreConfig(checkpoint_interval_s=None, idle_seal_s=None))


def is_journal(path: str) -> bool:
    directory, _, name = path.strip("/").rpartition("/")
    return directory == JOURNAL and filenames.parse(name).kind is FileKind.JOURNAL


def syncs_since(site: Site, start: int) -> Counter[str]:
    """Return how often a journal that had its name was synced, and how often anything else."""
    # A handle is called by the name under which it was created, which is the draft's.
    named: set[str] = set()
    found: Counter[str] = Counter()
    for number, one in enumerate(site.disk.trace):
        if one.verb is Verb.RENAME and is_journal(one.target):
            named.add(one.path)
        elif one.verb in SYNCING and number >= start:
            found["journal" if one.path in named else "else"] += 1
    return found


def add_batches(ledger: Ledger, count: int) -> None:
    for _ in range(count):
        ledger.append_many([PAYLOAD] * 1000)


def test_a_thousand_appends_are_a_thousand_syncs_of_the_journal(site: Site) -> None:
    ledger = site.open().ledger(1)
    ledger.append(PAYLOAD)  # the first add creates the journal
    start = len(site.disk.trace)
    for _ in range(1000):
        ledger.append(PAYLOAD)
    assert syncs_since(site, start) == {"journal": 1000}


def test_a_thousand_entries_appended_at_once_are_one_sync(site: Site) -> None:
    ledger = site.open().ledger(1)
    ledger.append(PAYLOAD)
    start = len(site.disk.trace)
    ledger.append_many([PAYLOAD] * 1000)
    assert syncs_since(site, start) == {"journal": 1}


def test_a_roll_to_a_new_journal_costs_four_syncs_more(site: Site) -> None:
    ledger = site.open().ledger(1)
    start = len(site.disk.trace)
    appends = 3100  # the first journal has room for a thousand groups, the second for two thousand
    for _ in range(appends):
        ledger.append(PAYLOAD)
    names = site.names(JOURNAL, ".txn")
    assert len(names) == 3
    # For each journal: its zeros, its name, the mark that announces it, and the mark's name.
    assert syncs_since(site, start) == {"journal": appends, "else": 4 * len(names)}


def test_each_journal_is_twice_as_large_until_the_size_that_was_set() -> None:
    """Otherwise a writer that is faster than the preallocation would roll at every other group."""
    site = Site(LARGE_TABLE)
    ledger = site.open().ledger(1)
    add_batches(ledger, 40)
    sizes = [len(site.bytes_of(f"{JOURNAL}/{name}")) >> 20 for name in site.names(JOURNAL, ".txn")]
    assert sizes == [1, 2, 4, 8, 16, 16]


def test_after_a_full_disk_a_smaller_journal_is_asked_for() -> None:
    site = Site(LARGE_TABLE, SimulatedDisk(capacity=14 << 20))
    ledger = site.open().ledger(1)
    with pytest.raises(DiskFull):
        add_batches(ledger, 40)
    assert (
        len(site.names(JOURNAL, ".txn")) == 3
    )  # of 1, 2 and 4 MiB, because there was no room for one of 8 MiB
    add_batches(ledger, 1)
    assert len(site.names(JOURNAL, ".txn")) == 4
