"""The progress of a cluster's workers, published in the metadata for `ledgerstore autorecovery status`.

    underreplication/progress/<session>    ephemeral: {"name": …, "bytes_per_s": …, "stuck": [...]}

Marks and locks say which ledgers are repaired and by which process. They do not say how fast, nor why one is
not repaired. A worker knows both. Apache BookKeeper's processes do not look at these nodes, and publish none.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from storage.cluster.metadata import underreplication
from storage.cluster.metadata.update import create_node
from storage.cluster.metadata.znodes import ANY_VERSION, CreateMode, Gone

if TYPE_CHECKING:
    from storage.cluster.metadata.znodes import Znodes

STUCK_MAX = 50
"""A node names so many ledgers that are not repaired; it has to be small."""


@dataclass(frozen=True, slots=True)
class StuckLedger:
    """A ledger whose last repair has failed."""

    ledger_id: int
    reason: str
    pause_s: float | None
    """This worker tries again after so long a pause; `None` if time does not help."""


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """The work that one worker has done since it was started, and its present speed."""

    name: str
    repaired: int = 0
    """Ledgers."""
    entries: int = 0
    size: int = 0
    """Bytes of the entries that were copied."""
    entries_per_s: float = 0.0
    bytes_per_s: float = 0.0
    stuck_count: int = 0
    stuck: tuple[StuckLedger, ...] = field(default=())
    """The first `STUCK_MAX` of them, by id."""


class CopyRate:
    """The entries and bytes that a worker copies in a second, between two looks."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._entries = self._size = 0

    def at(self, now: float, entries: int, size: int) -> tuple[float, float]:
        """Return both rates since the last look, from what was copied until now."""
        seconds = max(now - self._at, 1e-3)
        rates = (entries - self._entries) / seconds, (size - self._size) / seconds
        self._at, self._entries, self._size = now, entries, size
        return rates


def progress_path(root: str) -> str:
    """Return the parent of the nodes of all workers."""
    return f"{underreplication.base_path(root)}/progress"


def encode(progress: WorkerProgress) -> bytes:
    return json.dumps(asdict(progress)).encode()


def decode(data: bytes) -> WorkerProgress | None:
    """Decode a node; `None` if it is no progress of a worker, or that of a later version."""
    try:
        fields: dict[str, Any] = json.loads(data)
        stuck = tuple(StuckLedger(**one) for one in fields.pop("stuck"))
        return WorkerProgress(**fields, stuck=stuck)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


async def publish(znodes: Znodes, root: str, progress: WorkerProgress) -> None:
    """Write the node of this session's worker, as long as the session lives."""
    path, data = f"{progress_path(root)}/{znodes.session_id:016x}", encode(progress)
    if isinstance(await znodes.set(path, data, ANY_VERSION), Gone):
        # A lost answer is no trouble: the next one writes the node again.
        await create_node(znodes, path, data, CreateMode.EPHEMERAL)


async def read_all(znodes: Znodes, root: str) -> list[WorkerProgress]:
    """Return what the workers have published, by name."""
    parent = progress_path(root)
    names = await znodes.children(parent)
    paths = [] if isinstance(names, Gone) else [f"{parent}/{name}" for name in names.names]
    nodes = await znodes.get_all(paths)
    found = [decode(node.data) for node in nodes if not isinstance(node, Gone)]
    return sorted((one for one in found if one is not None), key=lambda one: one.name)
