"""Recovering our store in the laboratory shows everything that was added, each time, and nothing more."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

import pytest
from recorded import history_of

from recovery.crashlab.judge.outcome import ObservedState, UnreadableValue
from recovery.crashlab.record.history import Ctx, History, Op
from recovery.proving.lab import ORACLES
from recovery.proving.observation import go_on, recover
from recovery.proving.store_under_test import STORE, StoreUnderTest
from recovery.proving.workloads import WORKLOADS
from storage.entry.model import DigestType

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from recorded import FinishedWorkload

    Play = Callable[[str], FinishedWorkload]


def breaches(history: History, shown: ObservedState) -> list[str]:
    return [f"{breach}" for oracle in ORACLES for breach in oracle.breaches(history, shown)]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_without_a_crash_shows_its_history(name: str, played: Play) -> None:
    one = played(name)
    shown = recover(one.root)
    assert breaches(one.history, shown) == []
    assert not [value for value in shown.entries.values() if isinstance(value, UnreadableValue)]
    acked = {op.args[:-1] for op in one.history.acked("add")}
    assert len(shown.entries.keys() & acked) > 10


@pytest.mark.sampled(one_of=2)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_recovery_leaves_nothing_open_and_may_be_made_again(name: str, played: Play) -> None:
    root = played(name).root
    threads = set(threading.enumerate())
    first = recover(root)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    assert [recover(root) for _ in range(6)] == [first] * 6
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert set(threading.enumerate()) <= threads  # other descriptors may exist: the recovery must add none


@pytest.mark.sampled(one_of=2)
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_store_works_after_a_recovery_and_loses_nothing(name: str, played: Play, tmp_path: Path) -> None:
    one = played(name)
    shown = recover(one.root)
    marks = tmp_path / "marks"
    with marks.open("wb", buffering=0) as file:
        go_on(one.root, Ctx(file.fileno()))
    history = one.history.then(history_of(marks.read_bytes().splitlines()))
    again = recover(one.root)
    assert breaches(history, again) == []
    assert shown.entries.items() <= again.entries.items() | {
        item for item in shown.entries.items() if item[0][0] == 72
    }
    assert 70 in again.fenced
    assert again.confirmed[71] == 1


def test_fences_confirmations_and_deletes_are_in_more_than_one_workload(played: Play) -> None:
    words = {name: {op.kind for op in played(name).history.ops} for name in WORKLOADS}
    assert {"fence", "confirm", "delete"} <= words["ledgers"] & words["endings"]
    assert {"fence", "delete", "add_all"} <= words["lost index"]


def test_deferred_entries_without_a_force_are_not_acknowledged(played: Play) -> None:
    assert any(not op.is_acked for op in played("checkpoints").history.of("add"))


# ── the oracles notice missing and made-up data ───────────────────────────────────────────────────────────


def kinds_of(history: History, shown: ObservedState) -> set[str]:
    return {line.partition(" ")[0] for line in breaches(history, shown)}


def test_an_entry_that_is_gone_is_noticed(played: Play) -> None:
    one = played("checkpoints")
    shown = recover(one.root)
    for key in [(1, 0), (2, 1), (3, 0)]:
        entries = {other: value for other, value in shown.entries.items() if other != key}
        assert "LOST" in kinds_of(one.history, replace(shown, entries=entries))


def test_an_old_copy_is_noticed(played: Play) -> None:
    one = played("checkpoints")
    shown = recover(one.root)
    first = next(op for op in one.history.of("add") if op.args[:2] == (4, 3))
    entries = {**shown.entries, (4, 3): first.args[2]}
    assert kinds_of(one.history, replace(shown, entries=entries)) == {"STALE"}


def test_a_deleted_entry_that_is_back_is_noticed(played: Play) -> None:
    one = played("ledgers")
    shown = recover(one.root)
    gone = next(op for op in one.history.of("add") if op.args[0] == 30)
    entries = {**shown.entries, (30, 0): gone.args[2]}
    assert kinds_of(one.history, replace(shown, entries=entries)) == {"RESURRECTED"}


def test_a_fence_and_a_confirmation_that_are_gone_are_noticed(played: Play) -> None:
    one = played("ledgers")
    shown = recover(one.root)
    assert kinds_of(one.history, replace(shown, fenced=frozenset())) == {"UNFENCED"}
    assert kinds_of(one.history, replace(shown, confirmed={})) == {"WENT-BACK"}


def test_half_of_a_group_is_noticed(played: Play) -> None:
    one = played("checkpoints")
    shown = recover(one.root)
    entries = {other: value for other, value in shown.entries.items() if other != (2, 2)}
    assert {"LOST", "PARTIAL"} <= kinds_of(one.history, replace(shown, entries=entries))


# ── stores that have lost something ───────────────────────────────────────────────────────────────────────


def test_a_damaged_entry_is_shown_as_unreadable_and_its_neighbours_as_they_are(played: Play) -> None:
    one = played("endings")
    whole = recover(one.root)
    log = one.root / STORE / "ledgers" / "current" / "0.log"
    data = bytearray(log.read_bytes())
    at = data.index(b"1.0.")
    data[at] ^= 1
    log.write_bytes(data)
    shown = recover(one.root)
    changed = {key for key, value in shown.entries.items() if whole.entries[key] != value}
    assert changed == {(1, 0)}
    assert isinstance(shown.entries[1, 0], UnreadableValue)


def test_a_ledger_is_read_with_whatever_password_it_has(tmp_path: Path) -> None:
    for ledger_id, password in enumerate((b"", b"first", b"second")):
        with StoreUnderTest(tmp_path, count(1)) as opened:
            opened.store.ledger(ledger_id, DigestType.MAC, password).append(b"x")
            opened.store.ledger(10 + ledger_id, DigestType.MAC, password).fence()
    shown = recover(tmp_path)
    assert shown.entries == {(0, 0): b"x", (1, 0): b"x", (2, 0): b"x"}
    assert shown.fenced == {10, 11, 12}
    assert recover(tmp_path) == shown


def test_an_empty_root_becomes_an_empty_store(tmp_path: Path) -> None:
    assert recover(tmp_path) == ObservedState()
    assert breaches(History((Op("add", (1, 0, b"x"), 0),)), recover(tmp_path)) == []
