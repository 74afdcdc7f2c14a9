"""A store on a simulated disk whose background work is done when a test says so, in the test's own thread."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from file_index import FileIndexPlace

from recovery.crashlab import LoseAll, SimulatedDisk
from recovery.founding import Layout
from recovery.opening import Opening, Surroundings
from recovery.proving.crew import Crew
from storage import lastmark
from storage.codec.mark import Mark
from storage.config import StoreConfig

if TYPE_CHECKING:
    from storage.codec.mark import Trailer
    from storage.files import Directory
    from storage.position import JournalPosition
    from storage.store import Store

SMALL = StoreConfig(
    memtable_size_max=256 << 10,
    entry_size_max=64 << 10,
    group_size_max=64 << 10,
    journal_size=512 << 10,
    journal_max_backups=0,
    throttle_timeout_s=0.0,
    checkpoint_interval_s=None,
    idle_seal_s=None,
)
"""Nothing happens by itself, and everything is small."""

JOURNAL = "journal/current"
LEDGERS = "ledgers/current"


class Site:
    """A simulated disk, and the stores that are opened on it one after the other."""

    def __init__(self, config: StoreConfig = SMALL, disk: SimulatedDisk | None = None) -> None:
        self.config = config
        self.disk = SimulatedDisk() if disk is None else disk
        self.crew = Crew()
        self._salts = count(1)

    def open(self) -> Store:
        self.crew = Crew()
        layout = Layout(self.disk.root())
        surroundings = Surroundings(
            self.crew.hire,
            new_salt=lambda: next(self._salts),
            new_id=lambda: "5" * 32,
            clock=lambda: 0.0,
        )
        return Opening(layout, FileIndexPlace(layout.ledgers), self.config, surroundings).run()

    def after_kill(self) -> Store:
        self.disk.kill()
        return self.open()

    def after_power_cut(self) -> Store:
        """The store when nothing has survived but what was synced."""
        self.disk.power_cut(LoseAll())
        return self.open()

    def checkpoint(self, store: Store) -> None:
        """Asks for one and runs it, as far as it goes at once."""
        store._request_checkpoint()
        self.crew.run()

    # ── what is on the disk ──────────────────────────────────────────────────────────────────────────

    def directory(self, path: str) -> Directory:
        found = self.disk.root()
        for name in path.split("/"):
            found = found.directory(name)
        return found

    def names(self, path: str, suffix: str = "") -> list[str]:
        return [name for name in self.directory(path).names() if name.endswith(suffix)]

    def bytes_of(self, path: str) -> bytes:
        directory, _, name = path.rpartition("/")
        with self.directory(directory).open(name) as file:
            return file.read(0, file.size())

    def put(self, path: str, data: bytes) -> None:
        """The file as somebody else has left it, durably."""
        path, _, name = path.rpartition("/")
        directory = self.directory(path)
        if name in directory.names():
            directory.remove(name)
        with directory.create(name) as file:
            file.write(0, [data])
            file.sync()
        directory.sync()

    def flip(self, path: str, offset: int) -> None:
        """Rot: one bit is another."""
        data = bytearray(self.bytes_of(path))
        data[offset] ^= 0x10
        self.put(path, bytes(data))

    def remove(self, path: str) -> None:
        path, _, name = path.rpartition("/")
        self.directory(path).remove(name)
        self.directory(path).sync()

    def mark(self) -> JournalPosition:
        return self._mark().position

    def trailer(self) -> Trailer:
        trailer = self._mark().trailer
        assert trailer is not None
        return trailer

    def _mark(self) -> Mark:
        found = lastmark.load(self.directory(LEDGERS))
        assert isinstance(found, Mark)
        return found


def payloads(store: Store, ledger_id: int) -> list[bytes]:
    return list(store.ledger(ledger_id).payloads())
