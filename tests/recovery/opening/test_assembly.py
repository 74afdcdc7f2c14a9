"""The parts of a store get the limits that the settings state."""

from __future__ import annotations

from recovery.opening.assembly import space_limits
from storage.config import StoreConfig


def test_by_default_both_tables_and_a_journal_are_kept_free() -> None:
    config = StoreConfig(memtable_size_max=3 << 20, journal_size=8 << 20)
    assert space_limits(config).min_free == 14 << 20


def test_what_the_settings_keep_free_is_kept_free() -> None:
    assert space_limits(StoreConfig(space_min_free=7 << 20)).min_free == 7 << 20
