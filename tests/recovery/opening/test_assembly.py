"""The parts of a store get the limits that the settings state."""

from __future__ import annotations

from stepped_store import Site
from store_internals import StoreInternals

from recovery.opening.assembly import space_limits
from storage.config import StoreConfig
from storage.journal.seal import metadata_tag


def test_by_default_both_tables_and_a_journal_are_kept_free() -> None:
    config = StoreConfig(memtable_size_max=3 << 20, journal_size=8 << 20)
    assert space_limits(config).min_free == 14 << 20


def test_the_limit_of_free_space_is_that_of_the_settings() -> None:
    assert space_limits(StoreConfig(space_min_free=7 << 20)).min_free == 7 << 20


def test_after_an_opening_too_each_seal_names_the_newest_metadata() -> None:
    site = Site()
    store = site.open()
    store.ledger(7).append(b"x")
    store.ledger(7).delete()
    store = site.after_power_cut()
    store.ledger(8).append(b"y")
    engine = StoreInternals(store)
    assert engine.journal is not None
    assert engine.metadata.sequence > 0
    assert engine.journal.metadata_tag == metadata_tag(engine.metadata.sequence)
