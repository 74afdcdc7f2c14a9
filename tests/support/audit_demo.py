"""`make audit-demo`: three stores that share ledgers, damaged in several ways, and the audit that finds it.

If Spark or Java is missing, the audit runs in processes of this machine, and prints that."""

from __future__ import annotations

import json
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from recovery import open_store
from recovery.audit.self_test.stores import copy_running
from recovery.shell.exit_codes import Exit
from recovery.shell.main import cli
from storage import StoreConfig
from storage.entry import format as entry_format
from storage.entry.digest import digester, master_key
from storage.entry.model import DigestType, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.store import Store

MIB = 1 << 20
NAMES = ("bk1", "bk2", "bk3")
CONFIG = StoreConfig(
    checkpoint_interval_s=None,  # on a slow machine one would come before the damage
    memtable_size_max=8 * MIB,
    entry_log_size_max=8 * MIB,
    journal_size=16 * MIB,
    index_size_max=1 << 30,
)
SHARED = {101: (9_000, 1000), 102: (6_000, 1400), 103: (3_000, 2500)}
"""Ledgers with two copies of each entry on three stores: the number of entries and their size in bytes."""
OWN = {201: (4_000, 1200), 202: (1_500, 3000), 203: (9_000, 200), 204: (700, 5000), 205: (60, 100)}
"""Ledgers of which only one store has entries."""
DELETED, WITHOUT_DIGEST = 202, 205
LOST = range(4_300, 4_360)
"""Entries of ledger 102 that the last store never got."""
DIFFERENT = 1_234
"""An entry of ledger 103 that was written with different payloads to two stores."""
BATCH = 500
UNCHECKPOINTED = b"not yet in any entry log"


def main() -> None:
    place = Path(sys.argv[1] if len(sys.argv) > 1 else ".audit-demo")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    print(f"three stores are made in {place} …", flush=True)
    for number, name in enumerate(NAMES):
        build(place / name, number, place / "running")
    for done in damaged(place):
        print(f"  {done}")
    (place / "ensembles.json").write_text(json.dumps(ensembles(), indent=1))
    sys.stdout.flush()
    try:
        cli.main(["audit", *arguments(place)], prog_name="ledgerstore")
    except SystemExit as ended:
        # Exit code 1 (findings) is expected, because the stores are damaged on purpose.
        sys.exit(0 if ended.code == Exit.FINDINGS else ended.code)


def arguments(place: Path) -> list[str]:
    engine = "spark" if spark_can_run() else "local"
    return ["--replicas", str(place / "ensembles.json"), "--out", str(place / "report"), "--engine", engine]


def spark_can_run() -> bool:
    if find_spec("pyspark") is None:
        print("Spark is not installed: the audit runs on this machine's processes")
        return False
    from recovery.audit.spark.java import SparkUnavailable, find_java

    try:
        find_java()
    except SparkUnavailable as error:
        print(f"{error}; the audit runs on this machine's processes")
        return False
    return True


# ── three stores ─────────────────────────────────────────────────────────────────────────────────────────


def build(path: Path, number: int, running: Path) -> None:
    """Make one of three stores, some fifty megabytes, with the files that a kill would leave."""
    with open_store(running, CONFIG) as store:
        for ledger_id in SHARED:
            shared(store, number, ledger_id)
        own(store, number)
        store.checkpoint()
        store.ledger(DELETED + 1000 * number).delete()
        for _ in range(3):
            store.ledger(301 + number).append_many([UNCHECKPOINTED] * 50)
        # Nothing is running, so the files are now what they would be after a kill.
        copy_running(running, path)
    shutil.rmtree(running)


def shared(store: Store, number: int, ledger_id: int) -> None:
    """Yield this store's copies in the order in which a bookie would get them."""
    count, size = SHARED[ledger_id]
    protected = digester(DigestType.CRC32C)
    for entry_id in range(count):
        if number in places(entry_id) and not is_lost(ledger_id, entry_id, number):
            words = Entry(
                ledger_id, entry_id, entry_id - 1, size * (entry_id + 1), payload(number, ledger_id, entry_id)
            )
            store.bookie.defer(entry_format.encode(words, protected), master_key(b""))
    store.bookie.force(ledger_id)


def places(entry_id: int) -> tuple[int, int]:
    return entry_id % 3, (entry_id + 1) % 3


def is_lost(ledger_id: int, entry_id: int, number: int) -> bool:
    return ledger_id == 102 and entry_id in LOST and number == 2


def payload(number: int, ledger_id: int, entry_id: int) -> bytes:
    is_other = ledger_id == 103 and entry_id == DIFFERENT and number == places(entry_id)[0]
    dice = Random(f"{ledger_id} {entry_id} {is_other}")
    return dice.randbytes(SHARED[ledger_id][1])


def own(store: Store, number: int) -> None:
    dice = Random(number)
    for ledger_id, (count, size) in OWN.items():
        kind = DigestType.DUMMY if ledger_id == WITHOUT_DIGEST else DigestType.CRC32C
        ledger = store.ledger(ledger_id + 1000 * number, kind)
        for begin in range(0, count, BATCH):
            ledger.append_many([dice.randbytes(size) for _ in range(min(BATCH, count - begin))])


def ensembles() -> dict[str, object]:
    """Return the ensembles that a cluster's metadata would contain."""
    segments = [{"first_entry": 0, "stores": list(NAMES)}]
    shared = {
        str(ledger_id): {"write_quorum": 2, "ack_quorum": 2, "last_entry": count - 1, "segments": segments}
        for ledger_id, (count, _) in SHARED.items()
    }
    return {"stores": {name: name for name in NAMES}, "ledgers": shared}


# ── damage ───────────────────────────────────────────────────────────────────────────────────────────────


def damaged(place: Path) -> Iterator[str]:
    """Damage the stores, and yield a line for each damage."""
    first, second, third = (place / name for name in NAMES)
    logs = sorted(second.glob("ledgers/current/*.log"), key=lambda path: int(path.stem, 16))
    change(logs[0], 3_000_000, lambda byte: bytes([byte[0] ^ 0x10]))
    yield f"a bit flipped in {logs[0]}"
    change(logs[2], 4_000_000, lambda some: bytes(len(some)), 200_000)
    yield f"200,000 bytes of zeros in {logs[2]}"
    journals = sorted(first.glob("journal/current/*.txn"), key=lambda path: int(path.stem, 16))
    last = next(path for path in reversed(journals) if UNCHECKPOINTED in path.read_bytes())
    change(last, last.read_bytes().index(UNCHECKPOINTED) + 5, lambda some: some[::-1], 9)
    yield f"nine bytes turned around in {last}, where they would be replayed"
    [*_, newest] = sorted(third.glob("ledgers/current/*.log"), key=lambda path: int(path.stem, 16))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size - 300_000)
    yield f"the last 300,000 bytes of {newest} cut off"
    (third / "ledgers/current/notes.txt").write_text("who put this here?\n")
    yield "an unknown file in bk3"
    yield f"{len([one for one in LOST if 2 in places(one)])} entries of ledger 102 never came to bk3"
    yield f"entry {DIFFERENT} of ledger 103 differs between its two copies"


def change(path: Path, offset: int, how: Callable[[bytes], bytes], size: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        some = file.read(size)
        file.seek(offset)
        file.write(how(some))


if __name__ == "__main__":
    main()
