"""The pages of LMDB's trees, decoded to find the other pages that a page refers to.

    page       number u64 ┼ width u16 ┼ flags u16 ┼ lower u16 ┼ upper u16 ┼ … ┤
    branch     16: offsets u16 of its nodes, up to lower          the nodes, from upper on
      node     child u48 ┼ key size u16 ┼ key
    leaf       16: offsets u16 of its nodes, up to lower          the nodes, from upper on
      node     size u32 ┼ flags u16 ┼ key size u16 ┼ key ┼ value, or the number u64 of an overflow page
    leaf2      16: keys of equal width, one after the other
    overflow   instead of lower and upper the number of pages u32 ┼ the value
    tree       width u32 ┼ flags u16 ┼ depth u16 ┼ statistics: 32 bytes ┼ root u64

A value may be a tree: that of a named database, or of the many values of one key. Few values of a key are an
inner leaf inside the node. This is the format of LMDB 0.9 on a little-endian machine with 64 bits. Every
field is checked before it is used, and an invalid one is `Damaged`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from storage.entry.read_result import Damaged, Flaw

if TYPE_CHECKING:
    from storage.entry.digest import Buffer

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
    """The root, depth and key width of a tree, from its record."""

    root: int
    depth: int
    width: int = 0
    """The width of the keys if the leaves are arrays of keys of equal width; 0 otherwise."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A page that refers to pages of its tree, one level lower."""

    children: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Overflow:
    """A value of `size` bytes in pages of its own, the first of which is `page`."""

    page: int
    size: int


@dataclass(frozen=True, slots=True)
class Leaf:
    """A page on the lowest level of a tree: the trees and overflow pages that its values refer to."""

    trees: tuple[Tree, ...]
    overflows: tuple[Overflow, ...]


_NO_REFERENCES = Leaf((), ())


class _Invalid(Exception):
    """A field is invalid. Raised and caught in this module only."""


def decode_tree(data: Buffer) -> Tree | Damaged:
    """Decode the record of a tree, 48 bytes."""
    try:
        return _tree(data, 0)
    except _Invalid as error:
        return Damaged(0, Flaw.BAD_FIELD, str(error))


def decode(page: Buffer, number: int, tree: Tree, level: int) -> Branch | Leaf | Damaged:
    """Decode a page, which must have that number and be on that level of the tree; level 1 is the lowest."""
    try:
        return _decode(memoryview(page), number, tree, level)
    except _Invalid as error:
        return Damaged(0, Flaw.BAD_FIELD, f"page {number}: {error}")


def decode_run(head: Buffer, overflow: Overflow, page_size: int) -> int | Damaged:
    """Return the number of pages that an overflow value takes, from the head of its first page."""
    if len(head) < HEAD_SIZE:
        return Damaged(0, Flaw.FILE_SHORT, f"no page {overflow.page}")
    number, flags, pages = _RUN.unpack_from(head)
    if number != overflow.page or flags != _OVERFLOW:
        return Damaged(0, Flaw.OTHER_PLACE, f"no overflow page {overflow.page}")
    if pages * page_size < HEAD_SIZE + overflow.size:
        return Damaged(0, Flaw.BAD_FIELD, f"page {overflow.page}: its value needs more than {pages} pages")
    return int(pages)


def decode_values(page: Buffer) -> tuple[bytes | Overflow, ...] | Damaged:
    """Decode the values of a leaf without trees, such as one of the list of free pages."""
    view = memoryview(page)
    try:
        _, _, flags, lower, upper = _head(view)
        if flags != _LEAF:
            raise _Invalid("not a plain leaf")  # noqa: TRY301 - one place says what is damage
        return tuple(_value(view, at) for at in _nodes(view, lower, upper))
    except _Invalid as error:
        return Damaged(0, Flaw.BAD_FIELD, str(error))


def decode_numbers(value: Buffer) -> list[int] | Damaged:
    """Decode a value of the list of free pages; it may have unused room after the numbers."""
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
        raise _Invalid("a tree in the place of a value")
    return bytes(view[start : start + size])


def _head(view: memoryview) -> tuple[int, int, int, int, int]:
    if len(view) < HEAD_SIZE:
        raise _Invalid("it ends early")
    number, width, flags, lower, upper = _HEAD.unpack_from(view)
    if not HEAD_SIZE < lower <= upper <= len(view) or lower % 2:
        raise _Invalid(f"free space from {lower} to {upper}")
    return number, width, flags, lower, upper


def _decode(view: memoryview, number: int, tree: Tree, level: int) -> Branch | Leaf:
    own_number, width, flags, lower, upper = _head(view)
    if own_number != number:
        raise _Invalid(f"it has the number {own_number}")
    expected = _BRANCH if level > 1 else _LEAF | _LEAF2 if tree.width else _LEAF
    if flags != expected:
        raise _Invalid(f"another kind of page: {flags:x}")
    if level > 1:
        return Branch(_children(view, _nodes(view, lower, upper)))
    if not tree.width:
        return _leaf(view, lower, upper)
    if width != tree.width:
        raise _Invalid(f"keys of {width} bytes")
    _check_keys(view, lower, width)
    return _NO_REFERENCES


def _check_keys(view: memoryview, lower: int, width: int) -> None:
    if not width or HEAD_SIZE + (lower - HEAD_SIZE) // 2 * width > len(view):
        raise _Invalid("its keys do not fit")


def _nodes(view: memoryview, lower: int, upper: int) -> memoryview:
    """Where the nodes are, each with room for its fixed part."""
    offsets = view[HEAD_SIZE:lower].cast("H")
    if min(offsets) < upper or max(offsets) + _NODE.size > len(view):
        raise _Invalid("a node outside the page")
    return offsets


def _children(view: memoryview, nodes: memoryview) -> tuple[int, ...]:
    # As little work as possible for each node, because a commit reads some thousands of them.
    read, key_end_max, children = _NODE.unpack_from, len(view) - _NODE.size, []
    for at in nodes:
        low, middle, high, key_size = read(view, at)
        if at + key_size > key_end_max:
            raise _Invalid("a key beyond the end of the page")
        children.append(low | middle << 16 | high << 32)
    return tuple(children)


def _leaf_node(view: memoryview, at: int) -> tuple[int, int, int]:
    """Return the kind of the node's value, its start and its size."""
    low, high, kind, key_size = _NODE.unpack_from(view, at)
    start, size = at + _NODE.size + key_size, low | high << 16
    if kind not in _KINDS_OF_VALUE:
        raise _Invalid(f"a value of an unknown kind: {kind:x}")
    if start + (_NUMBER.size if kind == _IS_ELSEWHERE else size) > len(view):
        raise _Invalid("a value beyond the end of the page")
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
    return Leaf(tuple(trees), tuple(overflows)) if trees or overflows else _NO_REFERENCES


def _overflow(view: memoryview, start: int, size: int) -> Overflow:
    (page,) = _NUMBER.unpack_from(view, start)
    return Overflow(page, size)


def _check_inner(view: memoryview) -> None:
    """Check that an inner leaf fits into its node. It has no number and refers to no page."""
    _, width, flags, lower, upper = _head(view)
    if flags & ~_DIRTY == _LEAF | _INNER | _LEAF2:
        _check_keys(view, lower, width)
    elif flags & ~_DIRTY == _LEAF | _INNER:
        if any(_leaf_node(view, at)[0] for at in _nodes(view, lower, upper)):
            raise _Invalid("an inner leaf with values that are no plain bytes")
    else:
        raise _Invalid(f"an inner leaf of an unknown kind: {flags:x}")


_DIRTY = 0x10  # an inner leaf keeps this flag, while a page loses it when it is written


def _tree(data: Buffer, size: int) -> Tree:
    if len(data) < TREE_SIZE or (size and len(data) != size):
        raise _Invalid(f"a tree of {len(data)} bytes")
    width, flags, depth, root = _TREE.unpack_from(data)
    if depth > DEPTH_MAX or (depth == 0) != (root == NO_ROOT):
        raise _Invalid(f"a tree of depth {depth} with the root {root}")
    has_widths = flags & (_SORTED_VALUES | _EQUAL_WIDTHS) == _EQUAL_WIDTHS
    if has_widths and not width:
        raise _Invalid("a tree with keys of 0 bytes")
    return Tree(root, depth, width if has_widths else 0)
