"""A bookie ran on a store of ours: an opening finds the entries of both, and removes nothing."""

from __future__ import annotations

import hashlib
import shutil
from typing import TYPE_CHECKING

import fixtures
import pytest
from store_internals import StoreInternals

from recovery import open_store
from recovery.audit.self_test.stores import copy_running
from storage.checkpoint import mark_format as mark_codec
from storage.config import StoreConfig
from storage.disk import filenames
from storage.entry.digest import master_key
from storage.errors import CorruptionError, LedgerFenced, LedgerUnproven, Unauthorized
from storage.open_report import IndexFound

if TYPE_CHECKING:
    from pathlib import Path

    from storage.ledger import Ledger
    from storage.store import Store

QUIET = StoreConfig(
    checkpoint_interval_s=None,
    idle_seal_s=None,
    entry_size_max=64 << 10,
    group_size_max=64 << 10,
    journal_size=1 << 20,
    index_size_max=16 << 20,
)
JOURNAL = "journal/current"
LEDGERS = "ledgers/current"
OURS = 1001
"""No bookie's fixture has it."""
OURS_IN_IT = [b"logged", b"journaled"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store of ours as a killed process leaves it; its last entry is durable and only in a journal."""
    with open_store(tmp_path / "live", QUIET) as store:
        store.ledger(OURS).append(OURS_IN_IT[0])
        store.checkpoint()
        store.ledger(OURS).append(OURS_IN_IT[1])
        StoreInternals(store).seal()
        copy_running(tmp_path / "live", tmp_path / "store")
    return tmp_path / "store"


def run_a_bookie(path: Path, name: str) -> None:
    """Add the files of a set, as if that bookie had written them after ours."""
    if any(mark_of(name)):
        # It moves the mark only when everything before it is in entry logs.
        open_store(path, QUIET).close()
    leave_journals(path, name)
    leave_logs(path, name)
    (path / LEDGERS / "lastMark").write_bytes(mark_of(name))


def mark_of(name: str) -> bytes:
    return (fixtures.bookie(name) / "bookie" / LEDGERS / "lastMark").read_bytes()


def leave_journals(path: Path, name: str) -> None:
    for one in fixtures.journals(name):
        shutil.copy(one, path / JOURNAL / one.name)


def leave_logs(path: Path, name: str) -> None:
    # A bookie gives its logs ids after the largest one.
    for one in fixtures.entry_logs(name):
        shutil.copy(one, path / LEDGERS / filenames.entry_log(0x10 + int(one.stem, 16)))


def acknowledged(name: str, ledger_id: int) -> dict[int, str]:
    """Return the checksum of the payload of each entry that the bookie has acknowledged."""
    (ledger,) = [one for one in fixtures.manifest(name)["ledgers"] if one["ledger"] == ledger_id]
    return {one["entry"]: one["sha256"] for one in ledger["entries"]}


def living(name: str) -> list[tuple[int, bytes, bool]]:
    """Return each ledger that was not deleted, with its password and whether it was fenced."""
    return [
        (one["ledger"], one["password"].encode(), one["fenced"])
        for one in fixtures.manifest(name)["ledgers"]
        if not one["deleted"]
    ]


def content(ledger: Ledger) -> dict[int, str]:
    """Read every entry and verify it."""
    ids = [entry_id for part in ledger.entry_ids() for entry_id in part]
    return {one: hashlib.sha256(ledger.read(one).payload).hexdigest() for one in ids}


def everything(store: Store, name: str) -> dict[int, dict[int, str]]:
    passwords = {OURS: b""} | {ledger_id: password for ledger_id, password, _ in living(name)}
    return {one: content(store.ledger(one, password=passwords[one])) for one in sorted(passwords)}


def kept(path: Path) -> dict[str, bytes]:
    """Return the files with acknowledged data."""
    found = [*path.glob("journal/current/*"), *path.glob("ledgers/current/*.log")]
    return {str(one.relative_to(path)): one.read_bytes() for one in found}


def is_keyed(name: str, ledger_id: int) -> bool:
    """Return whether a journal has the ledger's key."""
    key = master_key(fixtures.passwords(name)[ledger_id])
    return any(key in one.read_bytes() for one in fixtures.journals(name))


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=[pytest.mark.slow] * (one == "02b_crash_inflight")) for one in fixtures.SETS],
)
def test_entries_of_both_writers_are_found_and_nothing_is_removed(path: Path, name: str) -> None:
    run_a_bookie(path, name)
    before = kept(path)
    with open_store(path, QUIET) as store:
        assert (store.opened.index, store.opened.findings) == (IndexFound.ADOPTED, ())
        assert "a bookie has written here" in str(store.opened)
        # All entries are in entry logs now, so none is written to a journal again.
        assert store.opened.records_carried == 0
        assert list(store.ledger(OURS).payloads()) == OURS_IN_IT
        for ledger_id, password, was_fenced in living(name):
            ledger = store.ledger(ledger_id, password=password)
            expected = acknowledged(name, ledger_id)
            # Adds that were in progress at the kill may be there too.
            assert {one: content(ledger).get(one) for one in expected} == expected
            assert ledger.is_fenced is was_fenced
            assert ledger.exists
        after = kept(path)
        assert {one: after[one] for one in before} == before
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.GOOD


@pytest.mark.sampled(one_of=3)
@pytest.mark.parametrize("name", fixtures.SETS)
def test_adds_continue_after_the_entries_of_both_writers(path: Path, name: str) -> None:
    run_a_bookie(path, name)
    with open_store(path, QUIET) as store:
        expected = everything(store, name)
        assert store.ledger(OURS).append(b"on") == 2
        expected[OURS][2] = hashlib.sha256(b"on").hexdigest()
        for ledger_id, password, was_fenced in living(name):
            ledger = store.ledger(ledger_id, password=password)
            if was_fenced or not is_keyed(name, ledger_id):
                with pytest.raises(LedgerFenced if is_keyed(name, ledger_id) else LedgerUnproven):
                    ledger.append(b"on")
                continue
            with pytest.raises(Unauthorized):
                store.ledger(ledger_id, password=b"another").append(b"on")
            if (last := ledger.last_entry_id) is not None:
                assert ledger.append(b"on") == last + 1
                expected[ledger_id][last + 1] = hashlib.sha256(b"on").hexdigest()
        StoreInternals(store).fail_background(OSError("killed"))  # closes without a checkpoint
    for _ in range(2):
        with open_store(path, QUIET) as store:
            assert store.opened.index is IndexFound.GOOD
            assert everything(store, name) == expected


@pytest.mark.parametrize("name", ["02a_crash_journal_only", "08_digests"])
def test_a_bookie_that_never_stored_a_mark_is_recognised_by_its_journal(path: Path, name: str) -> None:
    # Its ledgers may have other digest types than ours, which only the import finds out.
    leave_journals(path, name)
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.ADOPTED
        found = everything(store, name)
        assert {one: found[one] for one, _, _ in living(name)} == {
            one: acknowledged(name, one) for one, _, _ in living(name)
        }
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.GOOD
        assert everything(store, name) == found


@pytest.mark.parametrize("damaged", ["index", "mark"])
def test_a_bookie_s_journal_is_recognised_without_our_index_or_our_mark(path: Path, damaged: str) -> None:
    leave_journals(path, "08_digests")
    if damaged == "index":
        shutil.rmtree(path / LEDGERS / "index")
    else:
        mark = bytearray((path / LEDGERS / "lastMark").read_bytes())
        mark[30] ^= 1
        (path / LEDGERS / "lastMark").write_bytes(mark)
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.ADOPTED
        assert list(store.ledger(OURS).payloads()) == OURS_IN_IT
        assert content(store.ledger(4)) == acknowledged("08_digests", 4)


def test_a_bookie_s_journal_without_a_record_is_ignored(path: Path) -> None:
    empty = fixtures.journals("02a_crash_journal_only")[0].read_bytes()[:512].ljust(1 << 20, b"\0")
    (path / JOURNAL / "ff.txn").write_bytes(empty)
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.GOOD
        assert list(store.ledger(OURS).payloads()) == OURS_IN_IT


def test_a_log_that_is_not_in_the_index_is_read(path: Path) -> None:
    leave_logs(path, "01_clean")
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.ADOPTED
        assert everything(store, "01_clean")[OURS].keys() == {0, 1}
        for ledger_id, password, _ in living("01_clean"):
            ledger = store.ledger(ledger_id, password=password)
            assert content(ledger) == acknowledged("01_clean", ledger_id)
            with pytest.raises(LedgerUnproven):
                ledger.append(b"no journal that is left has its key")
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.GOOD


def of_a_bookie(path: Path) -> bytes:
    """Our mark as a bookie rewrites it that has added nothing."""
    return (path / LEDGERS / "lastMark").read_bytes()[: mark_codec.BOOKIE_SIZE]


@pytest.mark.parametrize("what", ["in its form", "empty"])
def test_a_bookie_s_mark_alone_replaces_the_index_and_loses_nothing(path: Path, what: str) -> None:
    written = of_a_bookie(path) if what == "in its form" else b""
    (path / LEDGERS / "lastMark").write_bytes(written)
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.ADOPTED
        assert list(store.ledger(OURS).payloads()) == OURS_IN_IT
        assert store.ledger(OURS).append(b"on") == 2
        assert store.ledgers() == [OURS]
    with open_store(path, QUIET) as store:
        assert store.opened.index is IndexFound.GOOD
        assert list(store.ledger(OURS).payloads()) == [*OURS_IN_IT, b"on"]


def test_a_missing_journal_of_the_bookie_s_mark_is_noticed_and_nothing_is_changed(path: Path) -> None:
    run_a_bookie(path, "03a_crash_after_checkpoint")
    (missing,) = fixtures.journals("03a_crash_after_checkpoint")
    (path / JOURNAL / missing.name).unlink()
    before = kept(path)
    for _ in range(2):
        with pytest.raises(CorruptionError) as caught:
            open_store(path, QUIET)
        assert (caught.value.file, caught.value.finding) == (missing.name, "MRK-002")
        assert kept(path) == before
    shutil.copy(missing, path / JOURNAL / missing.name)
    with open_store(path, QUIET) as store:
        assert list(store.ledger(OURS).payloads()) == OURS_IN_IT
        for ledger_id, password, _ in living("03a_crash_after_checkpoint"):
            ledger = store.ledger(ledger_id, password=password)
            assert content(ledger) == acknowledged("03a_crash_after_checkpoint", ledger_id)
