"""A store on a simulated disk. A test steps its background work in the test's own thread."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from file_index import FileIndexPlace
from store_internals import StoreInternals

from recovery.crashlab import LoseAll, SimulatedDisk
from recovery.directory.layout import Layout
from recovery.opening.assembly import Platform
from recovery.opening.open_store import Opening
from recovery.proving.stepped_workers import SteppedWorkers
from storage.checkpoint import mark as lastmark
from storage.checkpoint.mark_format import Mark
from storage.config import StoreConfig

if TYPE_CHECKING:
    from storage.checkpoint.mark_format import Trailer
    from storage.disk.files import Directory
    from storage.entry.position import JournalPosition
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
    collection_interval_s=None,
    space_reserve=0,
    space_min_free=0,
)
"""A configuration with small sizes and no background work that starts by itself."""

JOURNAL = "journal/current"
LEDGERS = "ledgers/current"


class Site:
    """A simulated disk, and the stores that are opened on it one after another."""

    def __init__(
        self, config: StoreConfig = SMALL, disk: SimulatedDisk | None = None, first_salt: int = 1
    ) -> None:
        self.config = config
        self.disk = SimulatedDisk() if disk is None else disk
        self.workers = SteppedWorkers()
        self._salts = count(first_salt)

    def open(self) -> Store:
        self.workers = SteppedWorkers()
        layout = Layout(self.disk.root())
        platform = Platform(
            self.workers.new_worker,
            new_salt=lambda: next(self._salts),
            new_id=lambda: "5" * 32,
            clock=lambda: 0.0,
        )
        return Opening(layout, FileIndexPlace(layout.ledgers), self.config, platform).run()

    def after_kill(self) -> Store:
        self.disk.kill()
        return self.open()

    def after_power_cut(self) -> Store:
        """Cut the power, so that only synced data survives, and open the store."""
        self.disk.power_cut(LoseAll())
        return self.open()

    def checkpoint(self, store: Store) -> None:
        """Request a checkpoint, and step it until it ends or has to wait."""
        StoreInternals(store).request_checkpoint()
        self.workers.run()

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
        """Write a file durably, as another program could have left it."""
        path, _, name = path.rpartition("/")
        directory = self.directory(path)
        if name in directory.names():
            directory.remove(name)
        with directory.create(name) as file:
            file.write(0, [data])
            file.sync()
        directory.sync()

    def flip(self, path: str, offset: int) -> None:
        """Flip one bit of a file."""
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
