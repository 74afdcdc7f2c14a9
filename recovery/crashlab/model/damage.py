"""Damage that a medium does to files at rest: bit flips, lost, misdirected and stale blocks, missing files.

Kinds of files and kinds of damage take turns, so that a run that is stopped early has tried all of them about
equally often. This module is pure: a tree is a mapping from paths to bytes.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import field as field_of
from enum import StrEnum
from hashlib import blake2b
from itertools import accumulate, chain, islice
from math import gcd
from random import Random
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable


Tree: TypeAlias = Mapping[str, bytes]

_SHORT = 16


class DamageKind(StrEnum):
    """The kinds of damage to a file."""

    FLIP = "flip"
    ZEROED = "zeroed block"
    MISDIRECTED = "misdirected block"
    STALE_BLOCK = "stale block"
    STALE_FILE = "stale file"
    TRUNCATED = "truncated"
    EMPTY = "empty"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Damage:
    """One damage to one file."""

    path: str
    kind: str
    """The kind of the file."""
    what: DamageKind
    offset: int = 0
    """The offset of the first changed byte; for a truncated file, its new size."""
    size: int = 0
    """The number of changed bytes."""
    label: str = ""
    """A description for people: which bit, or which block from where."""
    field: str = ""
    bit: int = 0
    put: bytes = field_of(default=b"", repr=False)
    """The bytes that replace the old ones."""

    def apply(self, tree: Tree) -> dict[str, bytes]:
        """Return a copy of the tree with this damage."""
        damaged = dict(tree)
        if self.what is DamageKind.MISSING:
            damaged.pop(self.path, None)
        else:
            damaged[self.path] = self.content(tree[self.path])
        return damaged

    def content(self, data: bytes) -> bytes:
        """Return the content of the file with this damage."""
        if self.what is DamageKind.STALE_FILE:
            return self.put
        if self.what in (DamageKind.TRUNCATED, DamageKind.EMPTY):
            return data[: self.offset]
        if self.what is DamageKind.FLIP:
            return _put(data, self.offset, bytes([data[self.offset] ^ 1 << self.bit]))
        return _put(data, self.offset, self.put)

    def __str__(self) -> str:
        where = f" in {self.field}" if self.field else ""
        return f"{self.path}: {self.what}" + (f", {self.label}" if self.label else "") + where


def effect_of(data: bytes, damage: Damage) -> Hashable:
    """Return a value that is equal for damages with the same effect; None if nothing changes."""
    match damage.what:
        case DamageKind.MISSING:
            return DamageKind.MISSING
        case DamageKind.FLIP:
            return damage.offset, damage.offset + 1, bytes([data[damage.offset] ^ 1 << damage.bit])
        case DamageKind.TRUNCATED | DamageKind.EMPTY:
            return (damage.offset, len(data), b"") if damage.offset < len(data) else None
        case DamageKind.STALE_FILE:
            return _difference(0, data, damage.put)
    return _difference(damage.offset, data[damage.offset : damage.offset + damage.size], damage.put)


def _difference(at: int, old: bytes, new: bytes) -> Hashable:
    """Return the range of bytes that differ, and the new bytes."""
    if old == new:
        return None
    head = _common(old, new)
    old, new = old[head:], new[head:]
    tail = _common(old[::-1], new[::-1])
    put = new[: len(new) - tail]
    return at + head, at + head + len(old) - tail, put if len(put) <= _SHORT else blake2b(put).digest()


def _common(a: bytes, b: bytes) -> int:
    """Return the length of the common prefix."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _put(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


T = TypeVar("T")

Older: TypeAlias = Mapping[str, Sequence[bytes]]
"""Earlier versions of files, by path."""
KindOf: TypeAlias = Callable[[str], str]
"""Maps a path to the kind of the file. Files of the kind "" are never damaged."""
Extent: TypeAlias = tuple[str, int, int]
"""A field of a file: name, offset, size. The fields of many records may have the same name."""
Fields: TypeAlias = Callable[[str, bytes], Iterable[Extent]]

BLOCKS = (512, 4096)
_DENSE = 16
_OTHERS_MAX = 8
_PATIENCE = 4096


def damages(
    tree: Tree,
    older: Older,
    kind_of: KindOf,
    fields: Fields | None = None,
    seed: int = 1,
    count: int | None = None,
) -> Iterator[Damage]:
    """Yield damages of these files. Each changes something, and no two have the same effect.

    The same arguments give the same damages. Without a count, all of them are generated.
    """
    site = _DamageInputs(tree, older, kind_of, fields or _no_fields, seed)
    yield from islice(_damages_of_all_kinds(site), count)


def _no_fields(_kind: str, _data: bytes) -> Iterable[Extent]:
    return ()


@dataclass(frozen=True, slots=True)
class _DamageInputs:
    """The input of all damage generators."""

    tree: Tree
    older: Older
    kind_of: KindOf
    fields: Fields
    seed: int

    def by_kind(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in sorted(self.tree):
            if kind := self.kind_of(path):
                found.setdefault(kind, []).append(path)
        return found

    def random(self, *about: str) -> Random:
        """Return a random generator whose sequence does not depend on the other files of the tree."""
        return Random(zlib.crc32("\0".join((str(self.seed), *about)).encode()))


@dataclass(frozen=True, slots=True)
class _DamageTarget:
    """One file to damage, with its fields, its earlier versions and other files of its kind."""

    path: str
    kind: str
    data: bytes
    extents: Sequence[Extent]
    versions: Sequence[bytes]
    others: Sequence[tuple[str, bytes]]
    random: Random

    def damage(self, what: DamageKind, offset: int, label: str = "", put: bytes = b"") -> Damage:
        return Damage(self.path, self.kind, what, offset, len(put), label, self._field_at(offset), put=put)

    def block(self, what: DamageKind, offset: int, put: bytes, label: str) -> Damage:
        """Return damage that replaces a block by these bytes, as far as the file is long."""
        return self.damage(what, offset, label, put[: len(self.data) - offset])

    def blocks(self, size: int) -> Iterator[int]:
        """Yield the offsets of the blocks of this size: the first block first, then in scattered order."""
        return (size * number for number in _scattered(-(-len(self.data) // size)))

    def _field_at(self, offset: int) -> str:
        names = (name for name, start, size in self.extents if start <= offset < start + size)
        return next(names, "")


def _damages_of_all_kinds(site: _DamageInputs) -> Iterator[Damage]:
    """Alternate between the kinds of files, and for each between the kinds of damage."""
    kinds = []
    for turn, (kind, paths) in enumerate(site.by_kind().items()):
        files = [_file(site, kind, number, paths) for number in range(len(paths))]
        site.random(kind).shuffle(files)
        seen: set[Hashable] = set()
        streams = deque(_damages_of_files(files, stream, seen) for stream in _STREAMS)
        streams.rotate(-turn)  # otherwise a short run would do the same damage to every kind of file
        kinds.append(round_robin(streams))
    return round_robin(kinds)


def _damages_of_files(
    files: Sequence[_DamageTarget], stream: Stream, seen: set[Hashable]
) -> Iterator[Damage]:
    return round_robin([_distinct(stream(file), file.data, seen) for file in files])


def _file(site: _DamageInputs, kind: str, number: int, paths: Sequence[str]) -> _DamageTarget:
    path = paths[number]
    data = site.tree[path]
    extents = [
        (name, offset, size)
        for name, offset, size in site.fields(kind, data)
        if size > 0 and 0 <= offset <= len(data) - size
    ]
    others = (*paths[number + 1 :], *paths[:number])[:_OTHERS_MAX]
    return _DamageTarget(
        path,
        kind,
        data,
        extents,
        site.older.get(path, ()),
        [(other, site.tree[other]) for other in others],
        site.random(kind, path),
    )


# ── one generator for each kind of damage to a file ────────────────────────────────────────────────────────


def _flips(file: _DamageTarget) -> Iterator[Damage]:
    return round_robin(_flips_in(file, group) for group in _groups(file))


def _flips_in(file: _DamageTarget, group: Sequence[Extent]) -> Iterator[Damage]:
    """Yield flips of single bits of these extents; consecutive flips are far apart."""
    ends = list(accumulate(8 * size for _, _, size in group))
    for place in _scattered(ends[-1], file.random.randrange(ends[-1])):
        number = bisect_right(ends, place)
        name, start, size = group[number]
        byte, bit = divmod(place - ends[number] + 8 * size, 8)
        label = f"bit {bit} of byte {start + byte}"
        yield Damage(file.path, file.kind, DamageKind.FLIP, start + byte, 1, label, name, bit)


def _groups(file: _DamageTarget) -> Iterator[Sequence[Extent]]:
    """Yield the fields grouped by name, and the gaps between fields as one group.

    A file without known fields is divided into ranges of growing size, because headers are at the beginning.
    """
    by_name: dict[str, list[Extent]] = {}
    for one in (*file.extents, *_gaps(file)):
        by_name.setdefault(one[0], []).append(one)
    yield from by_name.values() if file.extents else ([one] for one in _growing_ranges(len(file.data)))


def _gaps(file: _DamageTarget) -> Iterator[Extent]:
    end = 0
    for _, start, size in sorted((*file.extents, ("", len(file.data), 0)), key=lambda one: one[1]):
        if start > end:
            yield "", end, start - end
        end = max(end, start + size)


def _growing_ranges(size: int) -> Iterator[Extent]:
    start = 0
    while start < size:
        length = min(max(start, _DENSE), size - start)
        yield "", start, length
        start += length


def _zeroed(file: _DamageTarget) -> Iterator[Damage]:
    return round_robin(_zeroed_of(file, size) for size in BLOCKS)


def _zeroed_of(file: _DamageTarget, size: int) -> Iterator[Damage]:
    for at in file.blocks(size):
        yield file.block(DamageKind.ZEROED, at, bytes(size), f"{size} bytes at {at}")


def _misdirected(file: _DamageTarget) -> Iterator[Damage]:
    """Alternate between blocks of this file and of others, because a checksum may detect only one of them."""
    own = round_robin(_misdirected_from(file, file.path, file.data, size) for size in BLOCKS)
    others = round_robin(
        _misdirected_from(file, path, data, size) for path, data in file.others for size in BLOCKS
    )
    return round_robin((own, others))


def _misdirected_from(file: _DamageTarget, path: str, data: bytes, size: int) -> Iterator[Damage]:
    sources = -(-len(data) // size)
    for pair in _scattered(-(-len(file.data) // size) * sources):
        at, start = size * (pair // sources), size * (pair % sources)
        label = f"{size} bytes at {at} from {path} at {start}"
        yield file.block(DamageKind.MISDIRECTED, at, data[start : start + size], label)


def _stale_blocks(file: _DamageTarget) -> Iterator[Damage]:
    return round_robin(
        _stale_blocks_of(file, number, size) for number in range(len(file.versions)) for size in BLOCKS
    )


def _stale_blocks_of(file: _DamageTarget, number: int, size: int) -> Iterator[Damage]:
    version = file.versions[number]
    for at in file.blocks(size):
        label = f"{size} bytes at {at} of version {number + 1} of {len(file.versions)}"
        yield file.block(DamageKind.STALE_BLOCK, at, version[at : at + size], label)


def _stale_files(file: _DamageTarget) -> Iterator[Damage]:
    for number, version in enumerate(file.versions, 1):
        yield Damage(
            file.path,
            file.kind,
            DamageKind.STALE_FILE,
            size=len(version),
            label=f"version {number} of {len(file.versions)}",
            put=version,
        )


def _truncated(file: _DamageTarget) -> Iterator[Damage]:
    size = len(file.data)
    at_blocks = round_robin(file.blocks(block) for block in reversed(BLOCKS))
    at_fields = [at for _, start, length in file.extents for at in (start, start + length // 2)]
    file.random.shuffle(at_fields)
    anywhere = _scattered(size, file.random.randrange(size or 1))
    places = chain((size // 2, size - 1), round_robin((at_blocks, iter(at_fields), anywhere)))
    return (file.damage(DamageKind.TRUNCATED, at, f"to {at} of {size}") for at in places if at > 0)


def _empty(file: _DamageTarget) -> Iterator[Damage]:
    yield Damage(file.path, file.kind, DamageKind.EMPTY)


def _missing(file: _DamageTarget) -> Iterator[Damage]:
    yield Damage(file.path, file.kind, DamageKind.MISSING)


Stream: TypeAlias = Callable[[_DamageTarget], Iterator[Damage]]

_STREAMS: tuple[Stream, ...] = (
    _flips,
    _missing,
    _zeroed,
    _truncated,
    _misdirected,
    _empty,
    _stale_blocks,
    _stale_files,
)


# ── iterators ──────────────────────────────────────────────────────────────────────────────────────────────


def round_robin(streams: Iterable[Iterator[T]]) -> Iterator[T]:
    """Yield one item of each iterator in turn, until all are exhausted."""
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for one in islice(stream, 1):
            yield one
            waiting.append(stream)


def _scattered(n: int, first: int = 0) -> Iterator[int]:
    """Yield every number below n once, in steps of the golden ratio, so that successive ones are distant."""
    step = max(1, round(n * 0.618))
    while gcd(step, n) != 1:
        step += 1
    return ((first + number * step) % n for number in range(n))


def _distinct(stream: Iterator[Damage], data: bytes, seen: set[Hashable]) -> Iterator[Damage]:
    """Drop damages that change nothing, and those with the same effect as an earlier one.

    Stop after many such damages in a row, because a file of zeros, for example, has hardly any other blocks.
    """
    in_vain = 0
    for damage in stream:
        change = effect_of(data, damage)
        if change is None or (damage.path, change) in seen:
            if (in_vain := in_vain + 1) > _PATIENCE:
                return
            continue
        in_vain = 0
        seen.add((damage.path, change))
        yield damage
