"""A view's ledger has the same entries and raises the same errors as the store's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from recovery import open_store, open_view
from storage.entry.model import DigestType, Entry
from storage.errors import (
    DigestDiffers,
    EntryUnreadable,
    InvalidEntry,
    NoSuchEntry,
    NoSuchLedger,
    StoreError,
    Unauthorized,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from recovery.view.ledger import ViewLedger
    from recovery.view.view import View
    from storage.ledger import Ledger

PLAIN, SIGNED, GAPS, FENCED, EMPTY, ABSENT = 1, 2, 3, 4, 5, 9

Words = dict[str, Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, Words]]:
    """A store of several kinds of ledgers, and the answers of each before the store was closed."""
    root = tmp_path_factory.mktemp("made") / "store"
    with open_store(root) as store:
        store.ledger(PLAIN).append_many([b"plain %d" % number for number in range(3000)])
        store.checkpoint()
        store.ledger(PLAIN).append_many([b"later %d" % number for number in range(50)])
        store.ledger(SIGNED, DigestType.MAC, b"secret").append_many([b"signed", b"twice"])
        store.ledger(GAPS, DigestType.CRC32).append_many([b"one", b"two"])
        store.add(Entry(GAPS, 5, 1, 20, b"five"))
        store.ledger(FENCED).append(b"last")
        store.ledger(FENCED).fence()
        store.ledger(EMPTY).fence()
        store.ledger(PLAIN).set_explicit_lac(3001)
        return root, {one: said(store.ledger(one)) for one in store.ledgers()}


def said(ledger: Ledger | ViewLedger) -> Words:
    names = ("exists", "last_entry_id", "explicit_lac", "is_fenced", "digest_type")
    words: Words = {name: getattr(ledger, name) for name in names}
    if ledger.digest_type is not DigestType.MAC:
        words["last_add_confirmed"] = ledger.last_add_confirmed
    return words | {"entry_ids": ledger.entry_ids()}


@pytest.fixture
def view(made: tuple[Path, dict[int, Words]]) -> Iterator[View]:
    with open_view(made[0]) as view:
        yield view


def test_a_view_and_the_store_agree_on_each_ledger(made: tuple[Path, dict[int, Words]], view: View) -> None:
    assert {ledger_id: said(view.ledger(ledger_id)) for ledger_id in view.ledgers()} == made[1]
    assert not view.ledger(ABSENT).exists
    assert view.ledger(ABSENT).last_entry_id is None
    assert view.ledger(ABSENT).last_add_confirmed == -1


def test_entries_are_read_from_entry_logs_and_journals(view: View) -> None:
    ledger = view.ledger(PLAIN)
    assert ledger.read(17).payload == b"plain 17"
    assert ledger.read(3049).payload == b"later 49"
    assert [entry.entry_id for entry in ledger.entries(2990)] == list(range(2990, 3050))
    assert list(ledger.payloads(2999, 3000)) == [b"plain 2999", b"later 0"]
    assert len(list(ledger.payloads())) == 3050
    assert list(view.ledger(EMPTY).payloads()) == []


def test_a_mac_needs_the_password(view: View) -> None:
    assert list(view.ledger(SIGNED, DigestType.MAC, b"secret").payloads()) == [b"signed", b"twice"]
    assert view.ledger(SIGNED, password=b"secret").last_add_confirmed == 1
    with pytest.raises(Unauthorized):
        view.ledger(SIGNED, password=b"other").read(0)


ERRORS: list[tuple[Callable[[ViewLedger | Ledger], object], int, type[StoreError]]] = [
    (lambda ledger: ledger.read(4), GAPS, NoSuchEntry),
    (lambda ledger: list(ledger.payloads()), GAPS, NoSuchEntry),
    (lambda ledger: list(ledger.entries(3040, 3060)), PLAIN, NoSuchEntry),
    (lambda ledger: ledger.read(0), ABSENT, NoSuchLedger),
    (lambda ledger: list(ledger.entries()), ABSENT, NoSuchLedger),
    (lambda ledger: ledger.read(-1), PLAIN, InvalidEntry),
    (lambda ledger: list(ledger.payloads(-1)), PLAIN, InvalidEntry),
]


@pytest.mark.parametrize(("ask", "ledger_id", "error"), ERRORS)
def test_a_missing_entry_raises_the_same_as_in_a_store(
    view: View, ask: Callable[[ViewLedger], object], ledger_id: int, error: type[StoreError]
) -> None:
    with pytest.raises(error):
        ask(view.ledger(ledger_id))


def test_another_digest_type_is_refused(view: View) -> None:
    with pytest.raises(DigestDiffers):
        view.ledger(GAPS, DigestType.CRC32C).read(0)


def test_a_damaged_entry_is_unreadable(made: tuple[Path, dict[int, Words]], tmp_path: Path) -> None:
    root = shutil.copytree(made[0], tmp_path / "copy")
    log = root / "ledgers" / "current" / "0.log"
    data = bytearray(log.read_bytes())
    data[data.index(b"plain 17")] ^= 1
    log.write_bytes(data)
    with open_view(root) as view:
        assert view.ledger(PLAIN).read(16).payload == b"plain 16"
        with pytest.raises(EntryUnreadable):
            view.ledger(PLAIN).read(17)
        with pytest.raises(EntryUnreadable):
            list(view.ledger(PLAIN).payloads())
