"""Where a check of all ledgers has come to, so that the next auditor goes on there.

    underreplication/checkallledgersposition     {"began_ms": …, "percent": …, "next_id": …, "left": [...]}
    underreplication/replicascheckposition       the same for the check of all entries

A pass is complete when each ledger was checked since it began, and its time is stored then. The node is only
a hint: a position that is lost, or older than it could be, costs repeated checks.
"""

from __future__ import annotations

import bisect
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from storage.cluster.metadata import underreplication
from storage.cluster.metadata.update import create_node, delete_node
from storage.cluster.metadata.znodes import ANY_VERSION, Gone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from storage.cluster.metadata.underreplication import CheckKind
    from storage.cluster.metadata.znodes import Znodes

LEFT_MAX = 1000
"""The most ledgers that a position names one by one."""


@dataclass(frozen=True, slots=True)
class CheckPosition:
    """The ledgers that a pass has not checked yet."""

    began_ms: int
    percent: int
    """How many of the entries of each copy the pass reads."""
    next_id: int = 0
    """All ledgers with smaller ids were checked, but for those in `left`."""
    left: tuple[int, ...] = ()
    """Ledgers that could not be checked, because a bookie gave no useful answer."""


class CheckProgress:
    """The position of a pass that runs. Ledgers are begun in ascending order, and end in any."""

    def __init__(self, position: CheckPosition) -> None:
        self._position = position
        self._next_id = position.next_id
        self._under_way: list[int] = []
        self._left = sorted(position.left)

    def begin(self, ledgers: Iterable[int]) -> None:
        """Take note of ledgers that are checked now; they are after all those before, or were left."""
        for ledger_id in ledgers:
            bisect.insort(self._under_way, ledger_id)
            self._next_id = max(self._next_id, ledger_id + 1)

    def checked(self, ledger_id: int) -> None:
        self._under_way.remove(ledger_id)
        if ledger_id in self._left:
            self._left.remove(ledger_id)

    def forget(self, ledgers: Iterable[int]) -> None:
        """Take note of ledgers that were left and need no check, because they are gone."""
        gone = frozenset(ledgers)
        self._left = [one for one in self._left if one not in gone]

    def not_checked(self, ledger_id: int) -> None:
        """Take note of a ledger that has to be checked once more."""
        self._under_way.remove(ledger_id)
        if ledger_id not in self._left:
            bisect.insort(self._left, ledger_id)

    @property
    def is_complete(self) -> bool:
        """Whether nothing that was begun is left."""
        return not self._left and not self._under_way

    @property
    def position(self) -> CheckPosition:
        """Where another pass can go on."""
        open_ids = sorted({*self._left, *self._under_way})
        left, more = open_ids[:LEFT_MAX], open_ids[LEFT_MAX:]
        # Those that do not fit are checked again with all that follow.
        return replace(self._position, next_id=more[0] if more else self._next_id, left=tuple(left))


def position_path(root: str, kind: CheckKind) -> str:
    return f"{underreplication.base_path(root)}/{kind.node.removesuffix('ctime')}position"


async def read(znodes: Znodes, root: str, kind: CheckKind) -> CheckPosition | None:
    """Read the position of a pass that was cut short; `None` if there is none that can be used."""
    node = await znodes.get(position_path(root, kind))
    if isinstance(node, Gone):
        return None
    try:
        fields = json.loads(node.data)
        return CheckPosition(**{**fields, "left": tuple(map(int, fields["left"]))})
    except (ValueError, TypeError, KeyError):
        return None


async def write(znodes: Znodes, root: str, kind: CheckKind, position: CheckPosition) -> None:
    path, data = position_path(root, kind), json.dumps(asdict(position)).encode()
    if isinstance(await znodes.set(path, data, ANY_VERSION), Gone):
        await create_node(znodes, path, data)


async def clear(znodes: Znodes, root: str, kind: CheckKind) -> None:
    await delete_node(znodes, position_path(root, kind))
