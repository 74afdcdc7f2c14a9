"""Adds against the raw disk, in turns: the machine may be busy, so only ratios within one round count."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

from raw import RawFile, group
from result import Bar, Result, Sense

from recovery.opening import open_store
from storage import StoreConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from sizes import Sizes

    from storage.store import Store

PAYLOAD = bytes(range(256)) * 4
BATCH = 1000
ONE_BY_ONE_BAR = Bar(Sense.AT_LEAST, 0.80)
IN_BATCHES_BAR = Bar(Sense.AT_LEAST, 0.40)

JOURNALS_ONLY = StoreConfig(memtable_size_max=1 << 40, checkpoint_interval_s=None, journal_size=512 << 20)
"""No checkpoint and no filling falls into the run, as none falls into that of the raw file."""


def one_by_one(place: Path, sizes: Sizes) -> Result:
    """One writer, entry by entry."""
    return _add("append", place, sizes, JOURNALS_ONLY, batch=1, laps=sizes.appends, bar=ONE_BY_ONE_BAR)


def in_batches(place: Path, sizes: Sizes) -> Result:
    """One writer, a thousand entries with one sync."""
    name = "append_many of 1,000"
    return _add(name, place, sizes, JOURNALS_ONLY, batch=BATCH, laps=sizes.batches, bar=IN_BATCHES_BAR)


def beside_checkpoints(place: Path, sizes: Sizes) -> Result:
    """The same with default settings: journals are filled, and tables written down, meanwhile."""
    name = "append_many of 1,000, sustained"
    return _add(name, place, sizes, StoreConfig(), batch=BATCH, laps=sizes.batches, bar=None)


def _add(
    name: str, place: Path, sizes: Sizes, config: StoreConfig, *, batch: int, laps: int, bar: Bar | None
) -> Result:
    data, payloads = group(batch, PAYLOAD), [PAYLOAD] * batch
    raw_rates, our_rates = [], []
    with (
        closing(RawFile(place / "raw", sizes.raw_file)) as raw,
        open_store(place / "store", config) as store,
    ):
        ledger = store.ledger(1)
        append = (lambda: ledger.append(PAYLOAD)) if batch == 1 else (lambda: ledger.append_many(payloads))
        if config is JOURNALS_ONLY:
            _go_on_into_a_filled_journal(store)
        _rate(append, laps)
        for _ in range(sizes.rounds):
            raw_rates.append(batch * _rate(lambda: raw.append(data), laps))
            our_rates.append(batch * _rate(append, laps))
    return Result(scenario=name, unit="adds/s", ours=our_rates, raw=raw_rates, bar=bar)


def _go_on_into_a_filled_journal(store: Store) -> None:
    """The first journal is small; the next one is filled to its end before it is used."""
    journals, ledger = store._parts.journals, store.ledger(1)  # noqa: SLF001 - no user asks how full they are
    ledger.append(PAYLOAD)
    assert journals.active is not None
    first = journals.active.journal_id
    while journals.active.journal_id == first:
        ledger.append_many([PAYLOAD] * BATCH)
        while journals.fill_ahead():
            pass


def _rate(act: Callable[[], object], laps: int) -> float:
    start = time.perf_counter()
    for _ in range(laps):
        act()
    return laps / (time.perf_counter() - start)
