"""The store as a program to be killed: real files, real LMDB, and background work at places that do not vary.

What it says, a line for each: `asked LEDGER ENTRY TEXT` before it asks, `done LEDGER ENTRY TEXT` when it was
answered, `asked-all …` and `done-all …` for entries that come all or none.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from recovery.founding import Layout
from recovery.opening import Opening, Surroundings
from recovery.proving.crew import Crew
from storage.config import StoreConfig
from storage.entry import Entry
from storage.lmdb_index import LmdbPlace
from storage.posix_files import PosixDirectory

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kill_server import Ack, Json

    from storage.store import Store

CONFIG = StoreConfig(
    memtable_size_max=5 << 10,
    entry_size_max=1 << 10,
    group_size_max=2 << 10,
    journal_size=32 << 10,
    entry_log_size_max=16 << 10,
    index_size_max=1 << 20,
    journal_max_backups=0,
    throttle_timeout_s=0.0,
    checkpoint_interval_s=None,
    idle_seal_s=None,
)


class Sitting:
    """One opening of the store, and what is done in it."""

    def __init__(self, root: Path, ack: Ack) -> None:
        self.crew = Crew()
        self._ack = ack
        salts = count(1)
        path = root / "store"  # made by the opening: its name, too, must be durable
        path.mkdir(exist_ok=True)
        layout = Layout(PosixDirectory(path))
        surroundings = Surroundings(
            self.crew.hire,
            new_salt=lambda: next(salts),
            new_id=lambda: "5" * 32,
            clock=lambda: 0.0,
        )
        place = LmdbPlace(layout.ledgers, path / "ledgers" / "current", CONFIG.index_size_max)
        self.store: Store = Opening(layout, place, CONFIG, surroundings, parent=PosixDirectory(root)).run()

    def append(self, ledger_id: int, *sizes: int) -> None:
        ledger = self.store.ledger(ledger_id)
        for size in sizes:
            entry_id = (ledger.last_entry_id if ledger.last_entry_id is not None else -1) + 1
            text = f"{ledger_id}.{entry_id}." + "x" * size
            self._ack(f"asked {ledger_id} {entry_id} {text}")
            assert ledger.append(text.encode()) == entry_id
            self._ack(f"done {ledger_id} {entry_id} {text}")

    def append_many(self, ledger_id: int, count: int, size: int) -> None:
        ledger = self.store.ledger(ledger_id)
        first = (ledger.last_entry_id if ledger.last_entry_id is not None else -1) + 1
        texts = [f"{ledger_id}.{first + number}." + "y" * size for number in range(count)]
        self._ack(f"asked-all {ledger_id} {first} {' '.join(texts)}")
        assert ledger.append_many([text.encode() for text in texts]) == range(first, first + count)
        self._ack(f"done-all {ledger_id} {first} {' '.join(texts)}")

    def place(self, ledger_id: int, entry_id: int) -> None:
        text = f"{ledger_id}.{entry_id}.placed"
        self._ack(f"asked {ledger_id} {entry_id} {text}")
        self.store.add(Entry(ledger_id, entry_id, -1, 100 + entry_id, text.encode()))
        self._ack(f"done {ledger_id} {entry_id} {text}")

    def step(self, times: int) -> None:
        """Lets background work go on by so many steps."""
        for _ in range(times):
            for hand in self.crew.hands.values():
                hand.step()


def two_sittings(root: Path, ack: Ack) -> None:
    """Adds that overlap a checkpoint, a roll of the journal, a clean close; then more, and no close."""
    first = Sitting(root, ack)
    first.append(1, 100, 900)
    first.append_many(2, 3, 300)
    first.append(1, 900, 900, 900)  # the table is full: a checkpoint has begun
    for _ in range(3):
        first.step(2)
        first.append(3, 200)
        first.place(4, 7)
    first.crew.run()
    first.append(1, 10)
    first.store.close()
    second = Sitting(root, ack)
    second.append(2, 50)
    second.place(4, 3)


def recover(root: Path, ack: Ack) -> Json:
    """Opens, and shows every entry; the process ends without closing. What was shown must stay."""
    store = Sitting(root, ack).store
    shown = [_shown(store, ledger_id) for ledger_id in store.ledgers()]
    for ledger_id, entry_id, _, text in (entry for ledger in shown for entry in ledger):
        ack(f"done {ledger_id} {entry_id} {text}")
    return shown


def _shown(store: Store, ledger_id: int) -> Json:
    ledger = store.ledger(ledger_id)
    found = []
    for entry_id in range((ledger.last_entry_id or 0) + 1):
        if store._parts.reading.has(ledger_id, entry_id):
            entry = ledger.read(entry_id)
            found.append([ledger_id, entry_id, entry.length, entry.payload.decode()])
    return found


def found_index(root: Path, ack: Ack) -> Json:
    """Opens, and tells what became of the index."""
    return Sitting(root, ack).store.opened.index.name


def go_on(root: Path, ack: Ack) -> None:
    """Works on behind a recovery, with a checkpoint in it."""
    sitting = Sitting(root, ack)
    sitting.append(5, 40)
    sitting.store._request_checkpoint()
    sitting.crew.run()
    sitting.append(5, 41)


def contradiction(acks: Sequence[str], shown: Json) -> str:
    """Why this cannot be what is left after those lines; nothing when it can."""
    found = {(ledger_id, entry_id): text for ledger in shown for ledger_id, entry_id, _, text in ledger}
    asked: dict[tuple[int, int], str] = {}
    for line in acks:
        word, ledger_id, first, *texts = line.split(" ")
        entries = {(int(ledger_id), int(first) + at): text for at, text in enumerate(texts)}
        asked |= entries
        lost = [ids for ids, text in entries.items() if found.get(ids) != text]
        if word.startswith("done") and lost:
            return f"lost {lost}"
        if word == "asked-all" and 0 < len(lost) < len(entries):
            return f"a part only, without {lost}"
    return "".join(f"{ids} was never asked for" for ids, text in found.items() if asked.get(ids) != text)
