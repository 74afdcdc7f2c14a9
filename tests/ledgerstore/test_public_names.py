"""The public names of `ledgerstore`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import ledgerstore
from storage import errors

if TYPE_CHECKING:
    from pathlib import Path


def test_completion_offers_exactly_the_public_names() -> None:
    assert dir(ledgerstore) == sorted(ledgerstore.__all__)


@pytest.mark.parametrize("name", ledgerstore.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    value = getattr(ledgerstore, name)
    assert name == "__version__" or value.__doc__


def test_every_error_that_the_store_raises_is_public() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.StoreError)
    }
    assert raised <= set(ledgerstore.__all__)


def test_a_name_that_is_not_public_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="'ledgerstore' has no attribute 'opne'"):
        _ = ledgerstore.opne  # type: ignore[attr-defined]


def test_importing_ledgerstore_loads_neither_the_index_nor_the_event_loop() -> None:
    program = "import sys, ledgerstore; print({'lmdb', 'asyncio', 'threading', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_entries_of_one_process_are_read_by_a_store_and_a_view(tmp_path: Path) -> None:
    with ledgerstore.open(tmp_path, ledgerstore.StoreConfig(memtable_size_max=1 << 20)) as store:
        assert isinstance(store, ledgerstore.Store)
        ledger = store.ledger(42)
        assert isinstance(ledger, ledgerstore.Ledger)
        assert ledger.append(b"one") == 0
    with ledgerstore.open(tmp_path) as store:
        assert store.ledger(42).read(0).payload == b"one"
    with ledgerstore.open_view(tmp_path) as view:
        assert isinstance(view, ledgerstore.View)
        assert view.ledgers() == [42]


def test_coroutines_append_to_the_same_store(tmp_path: Path) -> None:
    async def main() -> list[bytes]:
        async with ledgerstore.open_async(tmp_path) as store:
            assert isinstance(store, ledgerstore.AsyncStore)
            ledger = store.ledger(1)
            assert isinstance(ledger, ledgerstore.AsyncLedger)
            await ledger.append(b"awaited")
            return [payload async for payload in ledger.payloads()]

    assert asyncio.run(main()) == [b"awaited"]
