"""`ledgerstore gc`: why each log is still there, beside a live store too, and a collection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import fixtures
import pytest
from shell_samples import rows, run, verdict
from stepped_store import LEDGERS, SMALL
from store_internals import StoreInternals

from recovery import open_store
from recovery.directory.audit_links import make_links
from recovery.directory.layout import Layout
from recovery.opening.assembly import Platform
from recovery.opening.open_store import Opening
from recovery.proving.stepped_workers import SteppedWorkers
from recovery.shell.commands import gc
from recovery.shell.output import StageProgressBar
from storage.disk.posix import PosixDirectory
from storage.index.lmdb.directory import LmdbIndexDirectory

if TYPE_CHECKING:
    from storage.store import Store

COMMAND = [sys.executable, "-c", "from recovery.shell.main import main; main()"]
RECORD = 1000 + 4 + 32 + 4  # payload, length word, head, digest
OF_A_LEDGER = 29
CONFIG = replace(SMALL, entry_log_size_max=64 << 10)
"""A log has room for the entries of two ledgers."""


def add(store: Store, *ledger_ids: int) -> None:
    for ledger_id in ledger_ids:
        store.ledger(ledger_id).append_many([bytes(1000)] * OF_A_LEDGER)


def make(path: Path, ledgers: int = 8) -> Path:
    """Make a closed store with two ledgers in each log."""
    with open_store(path, CONFIG) as store:
        for ledger_id in range(0, ledgers, 2):
            add(store, ledger_id, ledger_id + 1)
            store.checkpoint()
    return path


def delete(path: Path, *ledger_ids: int) -> None:
    with open_store(path, CONFIG) as store:
        for ledger_id in ledger_ids:
            store.ledger(ledger_id).delete()


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def outside(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )


def opened_by_hand(path: Path, workers: SteppedWorkers) -> Store:
    """Open a store whose background work the test steps."""
    layout = Layout(PosixDirectory(path))
    place = LmdbIndexDirectory(layout.ledgers, Path(layout.ledgers.path))
    return Opening(layout, place, CONFIG, Platform(workers.new_worker)).run()


@pytest.mark.slow
def test_logs_that_are_kept_for_different_reasons_are_each_named_beside_a_live_store(tmp_path: Path) -> None:
    path = make(tmp_path / "store", 16)
    flip(path / LEDGERS / "0.log", 4096 + 3 * RECORD + 500)
    workers = SteppedWorkers()
    store = opened_by_hand(path, workers)
    engine = StoreInternals(store)

    def checkpoint() -> None:
        engine.request_checkpoint()
        workers.run()

    links = make_links(str(path))
    links.hold(str(path / LEDGERS), ["6.log"])
    removed = (path / LEDGERS / "5.log").read_bytes()
    for ledger_id in (4, 10, 11, 12, 13):
        store.ledger(ledger_id).delete()
    checkpoint()
    assert engine.remove(5, 6).logs_removed == (5, 6)
    (path / LEDGERS / "5.log").write_bytes(removed)  # as a power cut brings it back
    engine.lose_location(2, 7)
    store.ledger(8).delete()
    store.ledger(9).delete()
    add(store, 20)
    engine.number_checkpoint()
    while not (path / LEDGERS / "8.log").exists():
        engine.step_checkpoint()

    done = outside("gc", "--exact", path, "--json")
    found = {row["log"]: row for row in json.loads(done.stdout)}
    at = 4096 + 3 * RECORD
    assert {log: (row["kept"], row["reason"]) for log, row in found.items() if log != "6.log"} == {
        "0.log": ("damaged", f"damaged, ELG-003 at {at}"),
        "1.log": ("unaccounted", f"unaccounted record at {4096 + 7 * RECORD}, IDX-003"),
        "2.log": ("waits", "waits for the next compaction"),
        "3.log": ("live", "100 % live, threshold 70 %"),
        "4.log": ("checkpoint", "waits for the checkpoint that takes deleted ledgers out of the index"),
        "5.log": ("unlinked", "removed: the next opening unlinks it"),
        "7.log": ("last", "last: its id would be given out again"),
        "8.log": ("active", "active: checkpoints append to it"),
    }
    assert found["6.log"]["kept"] == "held"
    assert found["6.log"]["reason"].startswith("held by an audit since ")
    assert (found["0.log"]["finding"], found["0.log"]["offset"]) == ("ELG-003", at)
    assert (found["2.log"]["live"], found["2.log"]["share"]) == (OF_A_LEDGER * RECORD, 0.5)
    assert found["2.log"]["ledgers"] == 2
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith(", 1 damaged, 1 with an unaccounted record")
    links.close()
    store.close()


def test_without_exact_damage_inside_of_a_log_is_not_looked_for(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    flip(path / LEDGERS / "0.log", 4096 + 500)
    assert [row["kept"] for row in rows("gc", path)] == ["live"] * 3 + ["last"]
    assert run("gc", path).exit_code == 0
    assert [row["kept"] for row in rows("gc", "--exact", path)] == ["damaged", "live", "live", "last"]
    assert run("gc", "--exact", path).exit_code == 1


def test_a_closed_store_shows_what_would_come_back_and_changes_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    delete(path, 0, 1, 2)
    before = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    done = run("gc", path)
    assert {one: one.read_bytes() for one in path.rglob("*") if one.is_file()} == before
    first, second, third, fourth = rows("gc", path)
    size = (path / LEDGERS / "0.log").stat().st_size
    assert (first["kept"], first["live"], first["comes_back"]) == ("next", 0, size)
    assert (second["kept"], second["share"]) == ("next", 0.5)
    assert second["comes_back"] == size - OF_A_LEDGER * RECORD
    assert (third["kept"], fourth["kept"]) == ("live", "last")
    words = f"gc: {2 * size - OF_A_LEDGER * RECORD:,} bytes come back from 2 of 4 logs"
    assert (verdict(done), done.exit_code) == (words, 0)


def test_a_run_removes_and_compacts_and_the_rest_can_be_read(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    delete(path, 0, 1, 2)
    done = run("gc", "--run", path)
    assert done.exit_code == 0
    assert verdict(done).startswith("gc: 2 logs of ")
    assert f"bytes removed, 29 entries of {29 * RECORD:,} bytes moved" in verdict(done)
    assert not (path / LEDGERS / "0.log").exists()
    assert not (path / LEDGERS / "1.log").exists()
    with open_store(path, CONFIG) as store:
        assert store.ledgers() == [3, 4, 5, 6, 7]
        assert all(len(list(store.ledger(one).payloads())) == OF_A_LEDGER for one in store.ledgers())
    again = run("gc", "--run", path)
    assert verdict(again) == "gc: 0 logs of 0 bytes removed"


def test_a_run_passes_over_a_damaged_log_and_does_the_others(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    delete(path, 0, 2)
    flip(path / LEDGERS / "0.log", 4096 + 40 * RECORD + 500)
    done = run("gc", "--run", path, "--json")
    found = {row["log"]: row for row in json.loads(done.stdout)}
    assert found["0.log"]["reason"] == f"damaged, ELG-003 at {4096 + 40 * RECORD}"
    assert "1.log" not in found
    assert done.exit_code == 1
    assert verdict(done).endswith(", 1 damaged")


def test_a_run_on_a_store_in_use_names_the_process(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    with open_store(path, CONFIG):
        done = outside("gc", "--run", path)
        assert done.returncode == 3
        assert str(os.getpid()) in done.stderr


def test_a_run_on_a_bookie_s_directory_is_refused_with_the_command_to_run_first() -> None:
    path = fixtures.bookie("03a_crash_after_checkpoint") / "bookie"
    before = sorted(one.name for one in path.rglob("*"))
    done = run("gc", "--run", path)
    assert done.exit_code == 3
    assert "rebuild-index" in verdict(done)
    assert sorted(one.name for one in path.rglob("*")) == before
    assert run("gc", path).exit_code == 0


@pytest.mark.parametrize("option", ["--exact", "--run"])
def test_a_directory_without_a_store_is_left_as_it_is(tmp_path: Path, option: str) -> None:
    assert run("gc", option, tmp_path).exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_exact_and_run_together_are_a_usage_error(tmp_path: Path) -> None:
    assert run("gc", "--exact", "--run", tmp_path).exit_code == 2


def test_thresholds_come_from_a_bookie_s_configuration(tmp_path: Path) -> None:
    path = make(tmp_path / "store")
    delete(path, 2)
    conf = tmp_path / "bk_server.conf"
    conf.write_text("majorCompactionThreshold=0.4\n")
    assert rows("gc", "--conf", conf, path)[1]["reason"] == "50 % live, threshold 40 %"
    conf.write_text("majorCompactionThreshold=4\n")
    refused = run("gc", "--conf", conf, path)
    assert (refused.exit_code, "majorCompactionThreshold" in verdict(refused)) == (3, True)


def test_a_run_that_is_interrupted_goes_on_when_it_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "store")
    delete(path, 0, 2, 4)

    class Interrupting(StageProgressBar):
        @property
        def is_due(self) -> bool:
            raise KeyboardInterrupt

    with monkeypatch.context() as interrupted:
        interrupted.setattr(gc, "StageProgressBar", Interrupting)
        assert run("gc", "--run", path).exit_code == 130
    assert run("gc", "--run", path).exit_code == 0
    with open_store(path, CONFIG) as store:
        assert store.ledgers() == [1, 3, 5, 6, 7]
        assert all(len(list(store.ledger(one).payloads())) == OF_A_LEDGER for one in store.ledgers())
    assert not any((path / LEDGERS / f"{one}.log").exists() for one in range(3))
