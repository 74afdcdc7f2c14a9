"""Stores and views that a program drops without closing them warn and release their locks and files."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from bookie_clients import AddingClient

from recovery import open_async_store, open_store, open_view
from storage.config import StoreConfig
from storage.errors import AlreadyOpen

if TYPE_CHECKING:
    from storage.aio.store import AsyncStore
    from storage.store import Store

ROOT = Path(__file__).parent.parent.parent
CONFIG = StoreConfig(entry_size_max=8 << 10, group_size_max=64 << 10, journal_size=1 << 20)


def opened_when_free(path: Path) -> Store:
    """Open the store again, as soon as the thread that closes it has released it."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return open_store(path, CONFIG)
        except AlreadyOpen:
            assert time.monotonic() < deadline
            os.sched_yield()


def drop(held: list[Any]) -> None:
    """Objects that the program drops."""
    held.clear()
    gc.collect()


def open_files(path: Path) -> list[str]:
    """The files in the directory that this process has open."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this very listing
            found.append(str(one.readlink()))
    return [one for one in found if one.startswith(str(path))]


def threads_end(before: set[threading.Thread]) -> None:
    for thread in set(threading.enumerate()) - before:
        thread.join(60)
        assert not thread.is_alive()


def test_a_store_that_is_dropped_warns_and_is_closed(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = open_store(tmp_path, CONFIG)
    store.ledger(1).append(b"a")
    store.checkpoint()
    store.ledger(1).append(b"b")
    held = [store]
    del store
    with pytest.warns(ResourceWarning, match=f"^unclosed store {tmp_path}$"):
        drop(held)
    with opened_when_free(tmp_path) as store:
        assert list(store.ledger(1).payloads()) == [b"a", b"b"]
        assert store.opened.records_replayed == 0
    del store
    threads_end(before)


def test_a_store_is_not_dropped_while_a_ledger_of_it_is_used(tmp_path: Path) -> None:
    ledger = open_store(tmp_path, CONFIG).ledger(1)
    gc.collect()
    assert ledger.append(b"a") == 0
    held = [ledger.payloads()]
    del ledger
    gc.collect()
    assert next(held[0]) == b"a"
    with pytest.warns(ResourceWarning, match="unclosed store"):
        drop(held)
    opened_when_free(tmp_path).close()


def test_a_bookie_keeps_its_store_too(tmp_path: Path) -> None:
    bookie = open_store(tmp_path, CONFIG).bookie
    gc.collect()
    writer = AddingClient(1)
    bookie.add(writer.entry(0), writer.key)
    held = [bookie]
    del bookie
    with pytest.warns(ResourceWarning, match="unclosed store"):
        drop(held)
    with opened_when_free(tmp_path) as store:
        assert store.bookie.read(1, 0) == writer.entry(0)


def test_adds_submitted_to_a_dropped_store_are_answered(tmp_path: Path) -> None:
    with pytest.warns(ResourceWarning, match="unclosed store"):
        future = open_store(tmp_path, CONFIG).ledger(1).submit(b"a")
    assert future.result(60) == 0
    with opened_when_free(tmp_path) as store:
        assert store.ledger(1).read(0).payload == b"a"


def test_a_store_for_coroutines_that_is_dropped_warns_and_is_closed(tmp_path: Path) -> None:
    before = set(threading.enumerate())

    async def main() -> None:
        store: AsyncStore | None = await open_async_store(tmp_path, CONFIG)
        assert store is not None
        ledger = store.ledger(1)
        del store
        gc.collect()
        assert await ledger.append(b"a") == 0
        held = [ledger]
        del ledger
        with pytest.warns(ResourceWarning, match=f"^unclosed store {tmp_path}$"):
            drop(held)

    asyncio.run(main())
    opened_when_free(tmp_path).close()
    threads_end(before)


def test_a_view_that_is_dropped_warns_and_is_closed(tmp_path: Path) -> None:
    open_store(tmp_path, CONFIG).close()
    held = [open_view(tmp_path)]
    assert open_files(tmp_path)
    with pytest.warns(ResourceWarning, match=f"^unclosed view {tmp_path}$"):
        drop(held)
    assert open_files(tmp_path) == []


def test_a_closed_store_or_view_does_not_warn(tmp_path: Path) -> None:
    store = open_store(tmp_path, CONFIG)
    store.close()
    view = open_view(tmp_path)
    view.close()
    held = [store, view]
    del store, view
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        drop(held)
    assert [one for one in warned if one.category is ResourceWarning] == []


def test_a_program_that_ends_with_an_open_store_is_warned_and_ends(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from recovery import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "store.ledger(1).append(b'a')\n"
        "store.checkpoint()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", script, tmp_path],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
    )
    assert done.returncode == 0
    assert f"ResourceWarning: unclosed store {tmp_path}" in done.stderr
    assert "Exception" not in done.stderr
    with open_store(tmp_path, CONFIG) as store:
        assert store.ledger(1).read(0).payload == b"a"
