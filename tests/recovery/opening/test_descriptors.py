"""A store that is closed, and an opening that is refused, leave no file open."""

from __future__ import annotations

import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.opening.open_store import open_store
from storage.config import StoreConfig
from storage.entry.model import DigestType
from storage.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

CONFIG = StoreConfig(index_size_max=1 << 24)
LEDGERS = "ledgers/current"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc names the open files")


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def use(path: Path) -> None:
    """Change what each file holds: entries, records of ledgers, tombstones, the mark, the index."""
    with open_store(path, CONFIG) as store:
        store.ledger(1).append_many([b"0", b"1"])
        store.ledger(2, digest=DigestType.CRC32, password=b"secret").append(b"0")
        store.ledger(3).append(b"0")
        store.checkpoint()
        store.ledger(3).delete()
        store.ledger(1).truncate(1)
        store.checkpoint()
        assert store.ledger(1).read(1).payload == b"1"


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[: len(data) // 2 + 1] = bytes(b ^ 0x55 for b in data[: len(data) // 2 + 1])
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda _: None,
    "no index": lambda ledgers: shutil.rmtree(ledgers / "index"),
    "no checksums of the index": lambda ledgers: (ledgers / "index/sums").unlink(),
    "a damaged index": lambda ledgers: damage(ledgers / "index/data.mdb"),
    "damaged checksums of the index": lambda ledgers: damage(ledgers / "index/sums"),
    "no mark": lambda ledgers: (ledgers / "lastMark").unlink(),
    "a damaged mark": lambda ledgers: damage(ledgers / "lastMark"),
    "damaged records of ledgers": lambda ledgers: damage(ledgers / "ledgers.rows"),
    "a short file of records of ledgers": lambda ledgers: cut(ledgers / "ledgers.rows"),
    "no records of ledgers": lambda ledgers: (ledgers / "ledgers.rows").unlink(),
    "a damaged entry log": lambda ledgers: damage(ledgers / "0.log"),
    "no entry log": lambda ledgers: (ledgers / "0.log").unlink(),
}


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store. What the interpreter opens once is open afterwards."""
    path = tmp_path_factory.mktemp("used")
    use(path)
    return path


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_file_is_closed_in_the_end(
    used: Path, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    path = tmp_path / "store"
    shutil.copytree(used, path)
    change(path / LEDGERS)
    before = descriptors()
    with suppress(StoreError):
        use(path)
    assert descriptors() <= before
