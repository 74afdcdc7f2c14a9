"""Where the time goes: that the parts are those of the whole. The figures say nothing here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import raw
from beside import Writer, beside
from read_shares import reads
from shares import coroutines, one_writer, one_writer_of_raw
from slowest import slowest

if TYPE_CHECKING:
    from pathlib import Path

_TURN = 64 << 10


@pytest.mark.skipif(bool(raw.why_not()), reason="there is no C compiler")
def test_an_add_is_its_write_its_sync_and_what_is_computed(tmp_path: Path) -> None:
    parts = [
        *one_writer(tmp_path / "one", 4, 100, 1, _TURN),
        *coroutines(tmp_path / "many", 8, 1, _TURN),
    ]
    assert len(parts) == 2
    for one in parts:
        assert one.raw > 0
        assert min(one.write, one.sync, one.computed) > 0
        assert one.write + one.sync + one.computed == pytest.approx(one.ours)


@pytest.mark.skipif(bool(raw.why_not()), reason="there is no C compiler")
def test_an_add_is_held_against_the_raw_limit_in_turns(tmp_path: Path) -> None:
    assert one_writer_of_raw(tmp_path, 3, 20) > 0


def test_a_read_takes_longer_than_what_it_is_made_of(tmp_path: Path) -> None:
    found = reads(tmp_path / "reads", 1, 500)
    parts = [value for name, value in found.items() if name.startswith("of it")]
    assert len(parts) == 3
    assert max(parts) < found["read"]


def test_the_slowest_are_told_with_what_others_did(tmp_path: Path) -> None:
    told, found = slowest(tmp_path / "slowest", 1500)
    assert told["p50"] <= told["p99"] <= told["p99.9"]
    assert [one.whole for one in found] == sorted((one.whole for one in found), reverse=True)
    assert all(one.own_sync + one.rolling <= one.whole for one in found)
    met = {what.split(maxsplit=1)[1] for one in found for what in one.beside}
    assert met <= {"next journal", "entry log", "other", "directory"}


@pytest.mark.skipif(bool(raw.why_not()), reason="there is no C compiler")
def test_as_much_is_written_beside_the_raw_limit(tmp_path: Path) -> None:
    for name, names in {"alone": (), "beside": ("filled", "logged")}.items():
        told = beside(tmp_path / name, 32, names)
        assert 0 < told.p50 <= told.p999
        assert told.mean > 0
        assert [(tmp_path / name / one).stat().st_size for one in names] == [2 << 20 for _ in names]


def test_all_that_is_asked_for_is_written_though_it_takes_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("beside._BEHIND_MAX", 2)
    with Writer(tmp_path, ("one", "other")) as writer:
        for _ in range(8):
            writer.ask()
    assert writer.bytes == 16 << 20
