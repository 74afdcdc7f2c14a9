"""A store on a simulated disk whose background work is done when a test says so, in the test's own thread."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from file_index import FileIndexPlace

from recovery.crashlab import LoseAll, SimulatedDisk
from recovery.founding import Layout
from recovery.opening import Opening, Surroundings
from storage import lastmark
from storage.codec.mark import Mark
from storage.config import StoreConfig
from storage.worker import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.codec.mark import Trailer
    from storage.files import Directory
    from storage.position import JournalPosition
    from storage.store import Store
    from storage.worker import Pause

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


class Hand:
    """A worker that steps only when its crew runs."""

    def __init__(
        self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]
    ) -> None:
        self.name = name
        self.pause: Pause = None
        """What it asked for when it last rested."""
        self._step = step
        self._on_failure = on_failure
        self._awake = False
        self._gone = False

    def wake(self) -> None:
        self._awake = True

    def stop(self) -> None:
        self._gone = True

    def step(self) -> bool:
        """Whether there was anything to do."""
        if self._gone or not self._awake:
            return False
        self._awake = False
        try:
            self.pause = self._step()
        except Exception as error:
            self._gone = True
            self._on_failure(error)
            return True
        self._awake = self._awake or self.pause == AT_ONCE
        return True

    def elapse(self) -> None:
        """The pause it asked for is over."""
        self._awake = self._awake or self.pause is not None


class Crew:
    """The workers of one store."""

    def __init__(self) -> None:
        self.hands: dict[str, Hand] = {}

    def hire(self, name: str, step: Callable[[], Pause], on_failure: Callable[[BaseException], None]) -> Hand:
        self.hands[name] = Hand(name, step, on_failure)
        return self.hands[name]

    def run(self) -> None:
        """Until nobody has anything to do at once."""
        while any(hand.step() for hand in self.hands.values()):
            pass

    def elapse(self) -> None:
        """Runs, lets every pause end, and runs again."""
        self.run()
        for hand in self.hands.values():
            hand.elapse()
        self.run()


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
