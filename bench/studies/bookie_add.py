"""Compares the bookie's add with `Ledger.append`: one writer, 1 KB, one after the other in one store.

    python bench/studies/bookie_add.py [ROUNDS]

The entries of the bookie's add are encoded before the clock starts, as a client on the network does it. The
ratio is the time of an append ÷ the time of the bookie's add, medians of the rounds.
"""

from __future__ import annotations

import sys
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TYPE_CHECKING

from recovery import open_store
from storage import DigestType
from storage.entry import format as entry_format
from storage.entry.digest import Digester, master_key
from storage.entry.model import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 100
ADDS = 50
_PAYLOAD = bytes(1024)


def rounds_of(path: str, rounds: int, adds: int = ADDS) -> Iterator[tuple[float, float]]:
    """Yield the seconds of an append and of a bookie's add, the median of each round."""
    key = master_key(b"")
    digester = Digester(DigestType.CRC32C)
    with open_store(path) as store:
        ledger = store.ledger(1)
        number = length = 0
        for _ in range(rounds):
            entries = []
            for _ in range(adds):
                length += len(_PAYLOAD)
                entries.append(entry_format.encode(Entry(2, number, number - 1, length, _PAYLOAD), digester))
                number += 1
            appends, bookie_adds = [], []
            for entry in entries:
                begun = perf_counter()
                ledger.append(_PAYLOAD)
                appended = perf_counter()
                store.bookie.add(entry, key)
                appends.append(appended - begun)
                bookie_adds.append(perf_counter() - appended)
            yield median(appends), median(bookie_adds)


def main() -> None:
    with TemporaryDirectory(dir=".") as path:
        found = list(rounds_of(path, int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
    append, bookie_add = (median(column) * 1e6 for column in zip(*found, strict=True))
    ratio = median(one / other for one, other in found)
    print(f"append {append:.1f} µs, bookie's add {bookie_add:.1f} µs, append ÷ bookie's add {ratio:.3f}")


if __name__ == "__main__":
    main()
