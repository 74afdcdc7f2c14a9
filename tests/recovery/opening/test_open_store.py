"""The files that an opening leaves to the next one: old files unchanged, carried-over entries sealed."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest
from stepped_store import JOURNAL, LEDGERS, Site, payloads

from recovery.crashlab import Lasting, Refused, Verb, When
from recovery.opening.open_store import JOURNALS_MAX, open_store
from storage.disk.posix import PosixDirectory
from storage.entry import record_format
from storage.errors import CorruptionError, DiskFull
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from pathlib import Path


def journals_of(site: Site) -> dict[str, bytes]:
    return {name: site.bytes_of(f"{JOURNAL}/{name}") for name in site.names(JOURNAL, ".txn")}


def test_an_opening_writes_nothing_to_a_journal_that_no_mark_names() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    store.ledger(1).append(b"x" * 60_000)
    while len(journals_of(site)) < 2:
        store.ledger(1).append(b"x" * 60_000)
    site.disk.kill()
    # Only the mark named the newest journal, because the index has the state of the last checkpoint.
    site.put(f"{LEDGERS}/lastMark", b"rotten")
    before = journals_of(site)

    store = site.open()

    after = journals_of(site)
    assert {name: after[name] for name in before} == before
    assert len(after) > len(before)
    assert payloads(store, 1)[0] == b"first"


def test_carried_over_records_are_proven_for_the_next_opening() -> None:
    site = Site()
    store = site.open()
    for number in range(3):
        store.ledger(1).append(b"%d" % number)
    store = site.after_kill()
    assert store.opened.records_carried > 0

    store = site.after_kill()

    assert store.opened.records_carried == 0
    assert payloads(store, 1) == [b"0", b"1", b"2"]


def test_a_mark_covers_no_single_add_after_the_table_was_frozen() -> None:
    site = Site()
    store = site.open()
    for number in range(4):
        store.ledger(1).append(b"%d" % number)
    site.checkpoint(store)
    # Each add is a group of its own, and is after the mark.
    for number in range(4, 8):
        store.ledger(1).append(b"%d" % number)

    assert payloads(site.after_power_cut(), 1) == [b"%d" % number for number in range(8)]


def test_repeated_crashes_leave_few_journals() -> None:
    site = Site()
    store = site.open()
    for number in range(10):
        store.ledger(1).append(b"%d" % number)
        store = site.after_kill()
        assert len(journals_of(site)) <= JOURNALS_MAX + 2

    assert payloads(store, 1) == [b"%d" % number for number in range(10)]


def test_an_opening_writes_a_lost_mark_again() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    store.ledger(1).append(b"second")
    position, generation = site.mark(), site.trailer().generation
    store.close()
    site.remove(f"{LEDGERS}/lastMark")

    opened = site.open()

    assert opened.opened.index is IndexFound.AHEAD
    assert payloads(opened, 1) == [b"first", b"second"]
    assert site.mark() >= position
    assert site.trailer().generation >= generation


def test_a_lost_mark_is_refused_before_the_first_checkpoint() -> None:
    site = Site()
    site.open().ledger(1).append(b"first")
    site.disk.kill()
    site.remove(f"{LEDGERS}/lastMark")
    with pytest.raises(CorruptionError, match="MRK-001 lastMark@0: missing"):
        site.open()


def test_a_lost_mark_and_a_lost_journal_of_the_index_are_refused() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    store.ledger(1).append(b"second")
    site.disk.kill()
    site.remove(f"{LEDGERS}/lastMark")
    for name in site.names(JOURNAL, ".txn"):
        site.remove(f"{JOURNAL}/{name}")
    with pytest.raises(CorruptionError, match="MRK-002"):
        site.open()


def test_an_opening_writes_a_damaged_mark_again() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    position, generation = site.mark(), site.trailer().generation
    store.close()
    site.put(f"{LEDGERS}/lastMark", b"rotten")

    site.open()

    assert site.mark() >= position
    assert site.trailer().generation >= generation


def test_an_opening_of_a_store_that_was_closed_replays_nothing() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    store.close()

    opened = site.open().opened

    assert (opened.records_replayed, opened.bytes_replayed, opened.records_carried) == (0, 0, 0)


def test_replayed_records_and_bytes_are_counted() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    store.ledger(1).append(b"second")

    opened = site.after_kill().opened

    overhead = len(record_format.encode_front(1, 0, -1, 5, b"first"))
    assert opened.records_replayed == 2
    assert opened.bytes_replayed == 2 * overhead + len(b"first" + b"second")


def test_an_unfinished_store_with_a_damaged_cookie_is_refused() -> None:
    site = Site()
    site.open().close()
    site.remove(f"{LEDGERS}/lastMark")
    site.flip(f"{LEDGERS}/VERSION", 0)

    with pytest.raises(CorruptionError):
        site.open()


def test_a_checkpoint_with_nothing_to_write_changes_nothing() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"first")
    site.checkpoint(store)
    generation, changes = site.trailer().generation, len(site.disk.trace)

    site.checkpoint(store)

    assert site.trailer().generation == generation
    assert len(site.disk.trace) == changes


def test_a_read_error_of_ledgers_rows_is_raised_and_not_taken_for_damage_of_the_index() -> None:
    site = Site()
    store = site.open()
    store.ledger(1).append(b"one")
    store.ledger(2).append(b"two")
    store.ledger(2).delete()
    site.checkpoint(store)
    site.disk.kill()
    site.disk.plant(Refused(When(verb=Verb.READ, name="ledgers.rows", nth=1)))

    with pytest.raises(OSError, match=r"ledgers\.rows"):
        site.open()

    site.disk.mend()
    store = site.open()
    assert store.opened.index is IndexFound.GOOD
    assert store.opened.findings == ()


@pytest.mark.parametrize(("verb", "name"), [(Verb.CREATE, "*"), (Verb.WRITE, "*"), (Verb.ZERO_FILL, "*")])
def test_an_opening_on_a_full_disk_names_the_store_and_succeeds_later(verb: Verb, name: str) -> None:
    site = Site()
    store = site.open()
    for number in range(3):
        store.ledger(1).append(b"%d" % number)
    site.disk.kill()
    site.disk.plant(Refused(When(verb=verb, name=name, lasting=Lasting.UNTIL_MENDED), errno.ENOSPC))
    with pytest.raises(DiskFull) as told:
        site.open()
    assert told.value.path.startswith(store.path)
    site.disk.mend()
    assert payloads(site.open(), 1) == [b"0", b"1", b"2"]


def test_without_space_for_a_new_store_the_error_names_the_store() -> None:
    site = Site()
    site.disk.plant(Refused(When(verb=Verb.WRITE, name="*", lasting=Lasting.UNTIL_MENDED), errno.ENOSPC))
    with pytest.raises(DiskFull) as told:
        site.open()
    site.disk.mend()
    assert told.value.path == site.open().path


def test_an_error_of_the_disk_in_an_opening_is_raised_as_it_is() -> None:
    site = Site()
    site.open().ledger(1).append(b"0")
    site.disk.kill()
    site.disk.plant(Refused(When(verb=Verb.CREATE, name="*", lasting=Lasting.UNTIL_MENDED), errno.EIO))
    with pytest.raises(OSError, match="Input/output error") as told:
        site.open()
    assert not isinstance(told.value, DiskFull)


def test_the_name_of_a_new_store_is_durable_when_the_store_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, seen = PosixDirectory.sync, list[tuple[str, bool]]()

    def noted(directory: PosixDirectory) -> None:
        seen.append((directory.path, any(path.rglob("lastMark"))))
        sync(directory)

    path = tmp_path / "new"
    monkeypatch.setattr(PosixDirectory, "sync", noted)
    open_store(path).close()
    assert (str(tmp_path), True) in seen
    assert (str(tmp_path), False) not in seen
    seen.clear()
    open_store(path).close()
    assert str(tmp_path) not in [one for one, _ in seen]


def test_after_an_opening_only_the_content_of_journals_counts_as_bytes_after_the_mark() -> None:
    site = Site()
    store = site.open()
    for number in range(3):
        store.ledger(1).append(b"%d" % number)
    store = site.after_kill()
    sizes = [len(data) for data in journals_of(site).values()]
    assert len(sizes) == 2
    assert 0 < store.stats().checkpoint.lag_bytes < min(sizes)
