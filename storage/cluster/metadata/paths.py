"""Where the metadata of a ledger is: ledger id ↔ path of its node.

    FLAT                /ledgers/L0000000007
    HIERARCHICAL        /ledgers/00/0000/L0007                  ids below 2³¹−1: 10 digits, divided 2-4-4
                        /ledgers/000/0000/0021/4748/L3648       all others: 19 digits, divided 3-4-4-4-4
    LONG_HIERARCHICAL   the second form for all ids

The node LAYOUT says which of them a cluster has:

    2\\n                                                        the version of this format
    org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory:1     a class of BookKeeper, and its version
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.cluster.errors import InvalidMetadata, NoSuchCluster
from storage.cluster.metadata.znodes import Gone

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from storage.cluster.metadata.znodes import Znodes

LEDGER_ID_MAX = (1 << 63) - 1
_SHORT_END = (1 << 31) - 1
"""From this id on the hierarchical tree has the long form."""


class LedgerTree(enum.Enum):
    """How ledgers are arranged below the root."""

    FLAT = "org.apache.bookkeeper.meta.FlatLedgerManagerFactory"
    HIERARCHICAL = "org.apache.bookkeeper.meta.HierarchicalLedgerManagerFactory"
    LONG_HIERARCHICAL = "org.apache.bookkeeper.meta.LongHierarchicalLedgerManagerFactory"


# ── the nodes beside the ledgers ──────────────────────────────────────────────────────────────────────────

LAYOUT = "LAYOUT"
INSTANCE_ID = "INSTANCEID"
AVAILABLE = "available"
READ_ONLY = "readonly"
COOKIES = "cookies"
UNDERREPLICATION = "underreplication"
ID_GENERATOR = "idgen"
LONG_ID_GENERATOR = "idgen-long"
ID_PREFIX = "ID-"

SPECIAL_NAMES = frozenset(
    {LAYOUT, INSTANCE_ID, AVAILABLE, COOKIES, UNDERREPLICATION, ID_GENERATOR, LONG_ID_GENERATOR}
)


def is_special(name: str) -> bool:
    """Return whether a child of the root has nothing to do with ledgers."""
    return name in SPECIAL_NAMES or name.startswith(ID_PREFIX)


_LAYOUT_VERSION = 2
_LAYOUT_VERSION_MIN = 1
_LAYOUT_TEXT = re.compile(rb"(?P<version>\d{1,9})\n(?P<name>[\w.$]+):(?P<number>\d{1,9})\n?")
_OLD_LAYOUTS = {b"flat": LedgerTree.FLAT, b"hierarchical": LedgerTree.HIERARCHICAL}
"""The names of version 1, which were no classes."""


def encode_layout(tree: LedgerTree) -> bytes:
    """Encode the data of the LAYOUT node."""
    return f"{_LAYOUT_VERSION}\n{tree.value}:1".encode()


def decode_layout(path: str, data: bytes) -> LedgerTree:
    """Decode the data of the LAYOUT node, or raise `InvalidMetadata`."""
    match = _LAYOUT_TEXT.fullmatch(data)
    if match is None:
        raise InvalidMetadata(path, f"no layout of ledgers: {data[:80]!r}")
    if not _LAYOUT_VERSION_MIN <= int(match["version"]) <= _LAYOUT_VERSION:
        raise InvalidMetadata(path, f"version {int(match['version'])}; this program knows 1 and 2")
    if match["name"] in _OLD_LAYOUTS:
        return _OLD_LAYOUTS[match["name"]]
    for tree in LedgerTree:
        if tree.value.encode() == match["name"]:
            return tree
    raise InvalidMetadata(path, f"ledgers are arranged by {match['name'].decode()}, which is not known here")


async def read_tree(znodes: Znodes, root: str) -> LedgerTree:
    """Return how the ledgers of a cluster are arranged: as LAYOUT says, or hierarchically without one."""
    layout = await znodes.get(f"{root}/{LAYOUT}")
    if not isinstance(layout, Gone):
        return decode_layout(f"{root}/{LAYOUT}", layout.data)
    # As in BookKeeper, whose clients write this LAYOUT then.
    if isinstance(await znodes.exists(root), Gone):
        raise NoSuchCluster(root)
    return LedgerTree.HIERARCHICAL


# ── ledger id ↔ path ──────────────────────────────────────────────────────────────────────────────────────

_FLAT_NAME = re.compile(r"L(\d{10,19})")
_SHORT = re.compile(r"(\d{2})/(\d{4})/L(\d{4})")
_LONG = re.compile(r"(\d{3})/(\d{4})/(\d{4})/(\d{4})/L(\d{4})")


@dataclass(frozen=True, slots=True)
class MisplacedNode:
    """A node where only ledgers belong, and that is none."""

    path: str
    problem: str

    def __str__(self) -> str:
        return f"{self.path}: {self.problem}"


@dataclass(frozen=True, slots=True)
class LedgerPaths:
    """The paths of the ledgers of one cluster."""

    root: str
    tree: LedgerTree

    def path_of(self, ledger_id: int) -> str:
        """Return the path of a ledger's node."""
        assert 0 <= ledger_id <= LEDGER_ID_MAX, ledger_id
        if self.tree is LedgerTree.FLAT:
            return f"{self.root}/L{ledger_id:010}"
        if self.tree is LedgerTree.HIERARCHICAL and ledger_id < _SHORT_END:
            digits = f"{ledger_id:010}"
            return f"{self.root}/{digits[:2]}/{digits[2:6]}/L{digits[6:]}"
        digits = f"{ledger_id:019}"
        parts = (digits[:3], digits[3:7], digits[7:11], digits[11:15], f"L{digits[15:]}")
        return "/".join((self.root, *parts))

    def ledger_at(self, path: str) -> int | MisplacedNode:
        """Return the id of the ledger whose node the path is."""
        relative = path.removeprefix(f"{self.root}/")
        pattern = _FLAT_NAME if self.tree is LedgerTree.FLAT else _SHORT
        match = pattern.fullmatch(relative) or (
            None if self.tree is LedgerTree.FLAT else _LONG.fullmatch(relative)
        )
        if match is None:
            return MisplacedNode(path, "not the node of a ledger")
        ledger_id = int("".join(match.groups()))
        if ledger_id > LEDGER_ID_MAX:
            return MisplacedNode(path, f"{ledger_id} is too large for the id of a ledger")
        if self.path_of(ledger_id) != path:
            return MisplacedNode(path, f"ledger {ledger_id} belongs at {self.path_of(ledger_id)}")
        return ledger_id


# ── listing ───────────────────────────────────────────────────────────────────────────────────────────────

_SHORT_LEVELS, _LONG_LEVELS = 2, 4
_TOP = re.compile(r"\d{2,3}")
_INNER = re.compile(r"\d{4}")


async def list_ledgers(znodes: Znodes, paths: LedgerPaths) -> AsyncIterator[int | MisplacedNode]:
    """Yield the ids of all ledgers, ascending, and what else is among them.

    A collector of old ledgers relies on the order. The server that is asked first catches up, because
    ledgers in an inner node that it does not show yet would look as if they were deleted.
    """
    await znodes.sync(paths.root)
    top = await znodes.children(paths.root)
    if isinstance(top, Gone):
        raise NoSuchCluster(paths.root)
    names = [name for name in top.names if not is_special(name)]
    if paths.tree is LedgerTree.FLAT:
        for found in _in_order(paths, [f"{paths.root}/{name}" for name in names]):
            yield found
        return
    for name in names:
        if not _TOP.fullmatch(name):
            yield MisplacedNode(f"{paths.root}/{name}", "neither a part of the ledgers nor a known node")
    # Those of two digits are the short form, whose ids are smaller.
    for digits, levels in ((2, _SHORT_LEVELS), (3, _LONG_LEVELS)):
        for name in names:
            if len(name) == digits and name.isdecimal():
                async for found in _below(znodes, paths, [f"{paths.root}/{name}"], levels - 1):
                    yield found


async def _below(
    znodes: Znodes, paths: LedgerPaths, parents: Sequence[str], levels: int
) -> AsyncIterator[int | MisplacedNode]:
    """Yield the ledgers below inner nodes of one level; `levels` is the number of inner levels below them."""
    for parent, children in zip(parents, await znodes.children_of_all(parents), strict=True):
        if isinstance(children, Gone):
            # Its last ledger was deleted meanwhile.
            continue
        found = [f"{parent}/{name}" for name in children.names]
        if levels == 0:
            for one in _in_order(paths, found):
                yield one
            continue
        inner = [path for path in found if _INNER.fullmatch(path.rpartition("/")[2])]
        for path in found:
            if path not in inner:
                yield MisplacedNode(path, "neither a part of the ledgers nor a known node")
        async for one in _below(znodes, paths, inner, levels - 1):
            yield one


def _in_order(paths: LedgerPaths, found: Sequence[str]) -> list[int | MisplacedNode]:
    """Return the ledgers at the paths, ascending, and before them the nodes that are none."""
    ledgers = [paths.ledger_at(path) for path in found]
    misplaced = [one for one in ledgers if isinstance(one, MisplacedNode)]
    return [*misplaced, *sorted(one for one in ledgers if isinstance(one, int))]
