"""The parts of an add and of a read add up to the whole. The figures mean nothing in a test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from contenders import raw
from studies.add_breakdown import coroutines, one_writer, share_of_raw
from studies.background_writes import BackgroundWriter, raw_with_background_writes
from studies.read_breakdown import read_breakdown
from studies.slowest_batches import slowest_batches

if TYPE_CHECKING:
    from pathlib import Path

_TURN = 64 << 10


@pytest.mark.bench
@pytest.mark.skipif(bool(raw.why_unavailable()), reason="there is no C compiler")
def test_an_add_is_the_sum_of_write_sync_and_computation(tmp_path: Path) -> None:
    parts = [
        *one_writer(tmp_path / "one", 4, 100, 1, _TURN),
        *coroutines(tmp_path / "many", 8, 1, _TURN),
    ]
    assert len(parts) == 2
    for one in parts:
        assert one.raw > 0
        assert min(one.write, one.sync, one.computed) > 0
        assert one.write + one.sync + one.computed == pytest.approx(one.ours)


@pytest.mark.bench
@pytest.mark.skipif(bool(raw.why_unavailable()), reason="there is no C compiler")
def test_an_add_is_compared_with_the_raw_limit_in_turns(tmp_path: Path) -> None:
    assert share_of_raw(tmp_path, 3, 20) > 0


@pytest.mark.bench
def test_a_read_takes_longer_than_each_of_its_parts(tmp_path: Path) -> None:
    found = read_breakdown(tmp_path / "reads", 1, 500)
    parts = [value for name, value in found.items() if name.startswith("of it")]
    assert len(parts) == 3
    assert max(parts) < found["read"]


@pytest.mark.bench
def test_the_slowest_batches_are_listed_with_operations_of_other_threads(tmp_path: Path) -> None:
    percentiles, found = slowest_batches(tmp_path / "slowest", 1500)
    assert percentiles["p50"] <= percentiles["p99"] <= percentiles["p99.9"]
    assert [one.whole for one in found] == sorted((one.whole for one in found), reverse=True)
    assert all(one.own_sync + one.rolling <= one.whole for one in found)
    met = {what.split(maxsplit=1)[1] for one in found for what in one.beside}
    assert met <= {"next journal", "entry log", "other", "directory"}


@pytest.mark.skipif(bool(raw.why_unavailable()), reason="there is no C compiler")
def test_the_background_files_grow_by_as_much_as_is_added(tmp_path: Path) -> None:
    for name, names in {"alone": (), "beside": ("filled", "logged")}.items():
        times = raw_with_background_writes(tmp_path / name, 32, names)
        assert 0 < times.p50 <= times.p999
        assert times.mean > 0
        assert [(tmp_path / name / one).stat().st_size for one in names] == [2 << 20 for _ in names]


def test_all_requested_megabytes_are_written_even_if_requests_have_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("studies.background_writes._PENDING_MAX", 2)
    with BackgroundWriter(tmp_path, ("one", "other")) as writer:
        for _ in range(8):
            writer.ask()
    assert writer.bytes == 16 << 20
