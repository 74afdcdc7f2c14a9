"""The pages of LMDB's trees, read by hand: which other pages a page names.

    page       number u64 ┼ width u16 ┼ flags u16 ┼ lower u16 ┼ upper u16 ┼ … ┤
    branch     16: offsets u16 of its nodes, up to lower          the nodes, from upper on
      node     child u48 ┼ key size u16 ┼ key
    leaf       16: offsets u16 of its nodes, up to lower          the nodes, from upper on
      node     size u32 ┼ flags u16 ┼ key size u16 ┼ key ┼ value, or the number u64 of an overflow page
    leaf2      16: keys of equal width, one behind the other
    overflow   instead of lower and upper the number of pages u32 ┼ the value
    tree       width u32 ┼ flags u16 ┼ depth u16 ┼ statistics: 32 bytes ┼ root u64

A value may be a tree, as a named database and the many values of one key are; few values of a key are a
little leaf of their own inside the node. All of LMDB 0.9, as a machine with 64 bits and little-endian numbers
writes it. Nothing here is believed: what makes no sense is Damaged.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.outcome import Damaged, Flaw

if TYPE_CHECKING:
    from storage.codec.digest import Buffer

HEAD_SIZE = 16
NO_ROOT = (1 << 64) - 1
"""The root of an empty tree."""
DEPTH_MAX = 32
"""LMDB's own limit."""

_BRANCH, _LEAF, _OVERFLOW, _LEAF2, _INNER = 0x01, 0x02, 0x04, 0x20, 0x40
_IS_ELSEWHERE, _IS_TREE, _IS_MANY = 0x01, 0x02, 0x04
_KINDS_OF_VALUE = frozenset({0, _IS_ELSEWHERE, _IS_TREE, _IS_MANY, _IS_TREE | _IS_MANY})
_SORTED_VALUES, _EQUAL_WIDTHS = 0x04, 0x10

_HEAD = struct.Struct("<QHHHH")
_NODE = struct.Struct("<HHHH")
_RUN = struct.Struct("<Q2xHI")
_TREE = struct.Struct("<IHH32xQ")
_NUMBER = struct.Struct("<Q")

TREE_SIZE = _TREE.size


@dataclass(frozen=True, slots=True)
class Tree:
    """A database, as its record says it."""

    root: int
    depth: int
    width: int = 0
    """Of the keys, where its leaves are arrays of keys of equal width; else 0."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A page that names pages of its own tree, one level further down."""

    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Overflow:
    """A value of that size in pages of its own, the first of which has that number."""

    page: int
    size: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """A page at the bottom of a tree, and what other pages its values lie in."""

    trees: tuple[Tree, ...]
    overflows: tuple[Overflow, ...]


_NAMES_NOTHING = Leaf((), ())


class _Senseless(Exception):
    """What stands there makes no sense; never leaves this module."""


def decode_tree(data: Buffer) -> Tree | Damaged:
    """The record of a database, 48 bytes."""
    try:
        return _tree(data, 0)
    except _Senseless as why:
        return Damaged(0, Flaw.BAD_FIELD, str(why))


def decode(page: Buffer, number: int, tree: Tree, level: int) -> Branch | Leaf | Damaged:
    """The whole page of that number, which stands in the tree, on that level: 1 is the lowest."""
    try:
        return _decode(memoryview(page), number, tree, level)
    except _Senseless as why:
        return Damaged(0, Flaw.BAD_FIELD, f"page {number}: {why}")


def decode_run(head: Buffer, overflow: Overflow, page_size: int) -> int | Damaged:
    """How many pages the overflow value takes, by the head of the first."""
    if len(head) < HEAD_SIZE:
        return Damaged(0, Flaw.FILE_SHORT, f"no page {overflow.page}")
    number, flags, pages = _RUN.unpack_from(head)
    if number != overflow.page or flags != _OVERFLOW:
        return Damaged(0, Flaw.OTHER_PLACE, f"no overflow page {overflow.page}")
    if pages * page_size < HEAD_SIZE + overflow.size:
        return Damaged(0, Flaw.BAD_FIELD, f"page {overflow.page}: its value needs more than {pages} pages")
    return int(pages)


def decode_values(page: Buffer) -> tuple[bytes | Overflow, ...] | Damaged:
    """The values of a leaf that holds no trees, as the list of free pages."""
    view = memoryview(page)
    try:
        _, _, flags, lower, upper = _head(view)
        if flags != _LEAF:
            raise _Senseless("no plain leaf")  # noqa: TRY301 - one place says what is damage
        return tuple(_value(view, at) for at in _nodes(view, lower, upper))
    except _Senseless as why:
        return Damaged(0, Flaw.BAD_FIELD, str(why))


def decode_numbers(value: Buffer) -> list[int] | Damaged:
    """The numbers that a value of the list of free pages lists; there may be room behind them."""
    if len(value) < _NUMBER.size or len(value) % _NUMBER.size:
        return Damaged(0, Flaw.BAD_FIELD, f"a list in {len(value)} bytes")
    (count,) = _NUMBER.unpack_from(value)
    if count >= len(value) // _NUMBER.size:
        return Damaged(0, Flaw.BAD_FIELD, f"a list of {count} in {len(value)} bytes")
    return list(struct.unpack_from(f"<{count}Q", value, _NUMBER.size))


def _value(view: memoryview, at: int) -> bytes | Overflow:
    kind, start, size = _leaf_node(view, at)
    if kind == _IS_ELSEWHERE:
        return _overflow(view, start, size)
    if kind:
        raise _Senseless("a tree where a value belongs")
    return bytes(view[start : start + size])


def _head(view: memoryview) -> tuple[int, int, int, int, int]:
    if len(view) < HEAD_SIZE:
        raise _Senseless("it ends early")
    number, width, flags, lower, upper = _HEAD.unpack_from(view)
    if not HEAD_SIZE < lower <= upper <= len(view) or lower % 2:
        raise _Senseless(f"nothing lies between {lower} and {upper}")
    return number, width, flags, lower, upper


def _decode(view: memoryview, number: int, tree: Tree, level: int) -> Branch | Leaf:
    own_number, width, flags, lower, upper = _head(view)
    if own_number != number:
        raise _Senseless(f"page {own_number} stands there")
    due = _BRANCH if level > 1 else _LEAF | _LEAF2 if tree.width else _LEAF
    if flags != due:
        raise _Senseless(f"another kind of page: {flags:x}")
    if level > 1:
        return Branch(_children(view, _nodes(view, lower, upper)))
    if not tree.width:
        return _leaf(view, lower, upper)
    if width != tree.width:
        raise _Senseless(f"keys of {width} bytes")
    _check_keys(view, lower, width)
    return _NAMES_NOTHING


def _check_keys(view: memoryview, lower: int, width: int) -> None:
    if not width or HEAD_SIZE + (lower - HEAD_SIZE) // 2 * width > len(view):
        raise _Senseless("its keys do not fit")


def _nodes(view: memoryview, lower: int, upper: int) -> memoryview:
    """Where the nodes are, each with room for its fixed part."""
    offsets = view[HEAD_SIZE:lower].cast("H")
    if min(offsets) < upper or max(offsets) + _NODE.size > len(view):
        raise _Senseless("a node outside of the page")
    return offsets


def _children(view: memoryview, nodes: memoryview) -> tuple[int, ...]:
    # Each commit reads some thousands of them: as little as can be for each.
    read, key_end_max, children = _NODE.unpack_from, len(view) - _NODE.size, []
    for at in nodes:
        low, middle, high, key_size = read(view, at)
        if at + key_size > key_end_max:
            raise _Senseless("a key behind the end of the page")
        children.append(low | middle << 16 | high << 32)
    return tuple(children)


def _leaf_node(view: memoryview, at: int) -> tuple[int, int, int]:
    """Of what kind the value is, where it begins, and how large it is."""
    low, high, kind, key_size = _NODE.unpack_from(view, at)
    start, size = at + _NODE.size + key_size, low | high << 16
    if kind not in _KINDS_OF_VALUE:
        raise _Senseless(f"a value of no kind: {kind:x}")
    if start + (_NUMBER.size if kind == _IS_ELSEWHERE else size) > len(view):
        raise _Senseless("a value behind the end of the page")
    return kind, start, size


def _leaf(view: memoryview, lower: int, upper: int) -> Leaf:
    trees, overflows = [], []
    for at in _nodes(view, lower, upper):
        kind, start, size = _leaf_node(view, at)
        if kind & _IS_TREE:
            trees.append(_tree(view[start : start + size], TREE_SIZE))
        elif kind == _IS_ELSEWHERE:
            overflows.append(_overflow(view, start, size))
        elif kind == _IS_MANY:
            _check_inner(view[start : start + size])
    return Leaf(tuple(trees), tuple(overflows)) if trees or overflows else _NAMES_NOTHING


def _overflow(view: memoryview, start: int, size: int) -> Overflow:
    (page,) = _NUMBER.unpack_from(view, start)
    return Overflow(page, size)


def _check_inner(view: memoryview) -> None:
    """Whether the little leaf keeps within its node. It has no number, and names no page."""
    _, width, flags, lower, upper = _head(view)
    if flags & ~_DIRTY == _LEAF | _INNER | _LEAF2:
        _check_keys(view, lower, width)
    elif flags & ~_DIRTY == _LEAF | _INNER:
        if any(_leaf_node(view, at)[0] for at in _nodes(view, lower, upper)):
            raise _Senseless("a value of a value")
    else:
        raise _Senseless(f"no values of a key: {flags:x}")


_DIRTY = 0x10  # what is inside of a node keeps the mark that a page loses when it is written


def _tree(data: Buffer, size: int) -> Tree:
    if len(data) < TREE_SIZE or (size and len(data) != size):
        raise _Senseless(f"a tree of {len(data)} bytes")
    width, flags, depth, root = _TREE.unpack_from(data)
    if depth > DEPTH_MAX or (depth == 0) != (root == NO_ROOT):
        raise _Senseless(f"a tree of depth {depth} with the root {root}")
    has_widths = flags & (_SORTED_VALUES | _EQUAL_WIDTHS) == _EQUAL_WIDTHS
    if has_widths and not width:
        raise _Senseless("a tree of keys without bytes")
    return Tree(root, depth, width if has_widths else 0)
