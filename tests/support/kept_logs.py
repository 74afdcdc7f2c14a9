"""Entry logs on a disk, tasks that read them, and engines that do it without the kernels."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from crc32c import crc32c
from entrylogs import Log, items, reader
from journals import entry_bytes

from recovery.audit.keeping import scan_of
from recovery.audit.log_scan import ScanLog
from recovery.audit.part_identity import Whose
from recovery.audit.task import Done
from recovery.audit.ways import Ways
from recovery.verify.parts import LogPart
from recovery.verify.runs import RUN, merged, mix, pack_place
from storage.codec.entrylog import Header
from storage.entry import DigestType
from storage.entrylog_reader import LogEntry
from storage.outcome import EndOfData

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from recovery.audit.task import Task

OURS = Ways(presumed=DigestType.CRC32C)


def log_file(folder: Path, log_id: int = 1, ledgers: Sequence[int] = (7, 8), count: int = 5) -> Path:
    """A sealed log in a file."""
    log = Log()
    for entry in range(count):
        log.add(*(entry_bytes(ledger, entry) for ledger in ledgers))
    path = folder / f"{log_id:x}.log"
    path.write_bytes(log.seal().file())
    return path


def scan(path: Path, ways: Ways = OURS, steps: Mapping[int, int] | None = None) -> ScanLog:
    """The whole log."""
    return ScanLog(str(path), int(path.stem, 16), 1024, path.stat().st_size, ways, steps or {})


def whose(*paths: Path, store: str = "/stores/a") -> dict[str, Whose]:
    return {str(path): Whose(store) for path in paths}


def part_of(task: ScanLog) -> LogPart:
    """What reading that log finds, entry by entry."""
    data = Path(task.path).read_bytes()
    found = [item for item in items(data) if isinstance(item, LogEntry)]
    header = reader(data).header
    assert isinstance(header, Header)
    return LogPart(
        log_id=task.log_id,
        start=task.start,
        end=task.end,
        entry=1024,
        exit=len(data),
        file_size=len(data),
        header=header,
        runs=merged(_run(task, item) for item in found),
        records=len(found),
        size=len(data) - 1024,
        stop=EndOfData(len(data)),
    )


def _run(task: ScanLog, item: LogEntry) -> Any:
    ledger, entry = item.ids
    place = pack_place(task.log_id, item.position.offset + 4)
    digest = crc32c(bytes(item.data))
    size = item.end - item.position.offset
    step = task.steps.get(ledger, 1)
    prints = [mix([ledger], [entry], [value])[0] for value in (place, digest)]
    return np.array([(task.log_id, ledger, step, entry, entry, 1, size, *prints, 0)], dtype=RUN)


def told(part: LogPart) -> dict[str, object]:
    """Everything that a part says, as values that can be compared."""
    said = {name: getattr(part, name) for name in LogPart.__slots__}
    return said | {
        "runs": (part.runs.dtype, part.runs.tolist()),
        "types": dict(part.types),
        "unverified": dict(part.unverified),
    }


class Interrupted(Exception):
    """Somebody has pressed Ctrl-C."""


@dataclass
class Reading:
    """An engine that tells what it was given, and may be interrupted."""

    tasks_max: int = 1_000_000
    finds: Callable[[ScanLog], LogPart] = part_of
    name: str = "reading"
    given: list[str] = field(default_factory=list)
    asked: int = 0

    def run(self, tasks: Sequence[Task[Any]], watch: Callable[[int], None]) -> Iterator[Done[Any]]:
        self.asked += 1
        # The last one first: engines answer in any order.
        for number, task in reversed(list(enumerate(tasks))):
            if len(self.given) == self.tasks_max:
                raise Interrupted
            self.given.append(task.name)
            scan = scan_of(task)
            part = f"did {task.name}" if scan is None else self.finds(scan)
            watch(part.size if isinstance(part, LogPart) else task.size)
            yield Done(number, part)


@dataclass
class Clock:
    """A second later each time."""

    now_ns: int = 1_000_000_000_000

    def __call__(self) -> int:
        self.now_ns += 1_000_000_000
        return self.now_ns
