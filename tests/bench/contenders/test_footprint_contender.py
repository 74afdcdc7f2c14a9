"""The measured sizes are those of the index and of the memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contenders.footprint_contender import FootprintContender

from recovery import open_store
from storage.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


_BYTES_OBJECT = 33


def test_the_size_of_the_index_includes_its_checksums(tmp_path: Path) -> None:
    found = FootprintContender(tmp_path, 100, 10, 1).index(entries=2000, run=50)["index_by_entry"]
    files = tmp_path / "indexed" / "ledgers" / "current" / "index"
    assert found * 2000 == sum((files / name).stat().st_size for name in ("data.mdb", "sums"))
    with open_store(tmp_path / "indexed") as store:
        assert [store.ledger(n).last_entry_id for n in store.ledgers()] == [199] * 10


@pytest.mark.bench
def test_memory_includes_the_objects_of_the_memtable(tmp_path: Path) -> None:
    found = FootprintContender(tmp_path, 100, 10, 1).traced(entries=20_000, run=100)["memory_by_entry"]
    assert _BYTES_OBJECT < found < 10 * _BYTES_OBJECT


@pytest.mark.bench
def test_other_memory_of_the_process_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = FootprintContender(tmp_path, 100, 10, 1).traced(entries=10_000, run=100)["memory_by_entry"]
    kept: list[bytes] = []
    append_many = Ledger.append_many

    def keep(ledger: Ledger, payloads: Iterable[bytes]) -> range:
        kept.extend(bytes(100) + payload for payload in payloads)
        return append_many(ledger, payloads)

    monkeypatch.setattr(Ledger, "append_many", keep)
    (tmp_path / "more").mkdir()
    more = FootprintContender(tmp_path / "more", 100, 10, 1).traced(entries=10_000, run=100)[
        "memory_by_entry"
    ]
    assert more - plain > 200
