"""The parts of a read of one entry, and a read of LMDB for comparison."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import lmdb

from recovery import open_store
from storage import ReadMode, StoreConfig
from storage.entry.record_format import decode_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_KIB = 1 << 10
_LEDGERS, _ENTRIES = 100, 2000
_US = 1000.0
_clock = time.perf_counter_ns


def read_breakdown(place: Path, rounds: int, count: int) -> dict[str, float]:
    """Return the microseconds of a read and of each of its parts, the best of some rounds."""
    place.mkdir()
    payloads = [random.Random(number).randbytes(_KIB) for number in range(_ENTRIES)]  # noqa: S311 - repeatable
    with open_store(place / "store") as store:
        for ledger_id in range(_LEDGERS):
            store.ledger(ledger_id).append_many(payloads)
    order = random.Random(1)  # noqa: S311 - the same
    requests = [(order.randrange(_LEDGERS), order.randrange(_ENTRIES)) for _ in range(count)]
    found = {}
    with open_store(place / "store") as store:
        ledgers = [store.ledger(number).read for number in range(_LEDGERS)]
        found["read"] = _best(lambda ledger_id, entry_id: ledgers[ledger_id](entry_id), requests, rounds)
        reader, cache = store._engine.reader, store._engine.reader._cache  # noqa: SLF001 - a profile looks inside
        logs = reader._logs  # noqa: SLF001
        for ledger_id in range(_LEDGERS):
            cache.locations(ledger_id, 0, _ENTRIES)  # load all locations, so that no read needs the index
        places = {at: cache.known(*at) for at in requests}

        def fetched(ledger_id: int, entry_id: int) -> bytes:
            here, following = places[ledger_id, entry_id]
            return logs.read(here, following - here if 0 < following - here < 8 * _KIB else 2 * _KIB)

        one = {at: fetched(*at) for at in requests}
        found["of it: its place, cached"] = _best(cache.known, requests, rounds)
        found["of it: the log, by pread"] = _best(fetched, requests, rounds)
        found["of it: verified, taken apart"] = _best(
            lambda *at: decode_crc32c(one[at], *at), requests, rounds
        )
    with open_store(place / "store", StoreConfig(read_mode=ReadMode.MMAP)) as store:
        ledgers = [store.ledger(number).read for number in range(_LEDGERS)]
        found["read, mapped"] = _best(
            lambda ledger_id, entry_id: ledgers[ledger_id](entry_id), requests, rounds
        )
    found["LMDB, nothing verified"] = _lmdb(place / "lmdb", payloads, requests, rounds)
    return found


def _lmdb(place: Path, payloads: Sequence[bytes], requests: Sequence[tuple[int, int]], rounds: int) -> float:
    with lmdb.open(str(place), map_size=1 << 30) as environment:
        with environment.begin(write=True) as change:
            for ledger_id in range(_LEDGERS):
                for entry_id, payload in enumerate(payloads):
                    change.put(_key(ledger_id, entry_id), payload)
        with environment.begin() as view:
            return _best(lambda ledger_id, entry_id: view.get(_key(ledger_id, entry_id)), requests, rounds)


def _key(ledger_id: int, entry_id: int) -> bytes:
    return ledger_id.to_bytes(8, "big") + entry_id.to_bytes(8, "big")


def _best(act: Callable[[int, int], object], requests: Sequence[tuple[int, int]], rounds: int) -> float:
    laps = []
    for _ in range(rounds + 1):
        start = _clock()
        for ledger_id, entry_id in requests:
            act(ledger_id, entry_id)
        laps.append(_clock() - start)
    return min(laps) / len(requests) / _US
