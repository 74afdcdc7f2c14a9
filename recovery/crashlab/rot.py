"""What a medium does to files that nobody touches: the grammar of damage, and how a store takes it.

Each kind of file gets each kind of damage, in turns, so that a run that is stopped anywhere has tried all of
them equally often. Pure: trees are mappings from a path to its bytes.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from math import gcd
from random import Random
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from recovery.crashlab.damage import Damage, Tree, What, change_of
from recovery.crashlab.verdict import Verdict, differences, judge

if TYPE_CHECKING:
    from collections.abc import Hashable

T = TypeVar("T")

Older: TypeAlias = Mapping[str, Sequence[bytes]]
"""Earlier versions of files, each by its path."""
KindOf: TypeAlias = Callable[[str], str]
"""The kind of a file by its path; files of the kind "" are never damaged."""
Extent: TypeAlias = tuple[str, int, int]
"""A field of a file: name, offset, size. Many may have the same name: those of many records."""
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
    """Damages of these files, no two of which come to the same and each of which changes something.

    The same arguments give the same damages. Without a count they end when there are no others.
    """
    site = _Site(tree, older, kind_of, fields or _no_fields, seed)
    yield from islice(_of_all_kinds(site), count)


def _no_fields(_kind: str, _data: bytes) -> Iterable[Extent]:
    return ()


@dataclass(frozen=True, slots=True)
class _Site:
    """All that the streams of damage read."""

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
        """Chance that is the same whatever else is in the tree."""
        return Random(zlib.crc32("\0".join((str(self.seed), *about)).encode()))


@dataclass(frozen=True, slots=True)
class _File:
    """One file, and others of its kind."""

    path: str
    kind: str
    data: bytes
    extents: Sequence[Extent]
    versions: Sequence[bytes]
    others: Sequence[tuple[str, bytes]]
    random: Random

    def damage(self, what: What, offset: int, label: str = "", put: bytes = b"") -> Damage:
        return Damage(self.path, self.kind, what, offset, len(put), label, self._field_at(offset), put=put)

    def block(self, what: What, offset: int, put: bytes, label: str) -> Damage:
        """These bytes stand there instead, as far as the file goes."""
        return self.damage(what, offset, label, put[: len(self.data) - offset])

    def blocks(self, size: int) -> Iterator[int]:
        """Where the blocks of this size begin: the first one first, then far from one another."""
        return (size * number for number in _scattered(-(-len(self.data) // size)))

    def _field_at(self, offset: int) -> str:
        names = (name for name, start, size in self.extents if start <= offset < start + size)
        return next(names, "")


def _of_all_kinds(site: _Site) -> Iterator[Damage]:
    """Kind of file by kind of file, and within each kind of damage by kind of damage."""
    kinds = []
    for turn, (kind, paths) in enumerate(site.by_kind().items()):
        files = [_file(site, kind, number, paths) for number in range(len(paths))]
        site.random(kind).shuffle(files)
        seen: set[Hashable] = set()
        streams = deque(_of_all(files, stream, seen) for stream in _STREAMS)
        streams.rotate(-turn)  # or a short run would do the same to every kind
        kinds.append(in_turns(streams))
    return in_turns(kinds)


def _of_all(files: Sequence[_File], stream: Stream, seen: set[Hashable]) -> Iterator[Damage]:
    return in_turns([_worthwhile(stream(file), file.data, seen) for file in files])


def _file(site: _Site, kind: str, number: int, paths: Sequence[str]) -> _File:
    path = paths[number]
    data = site.tree[path]
    extents = [one for one in site.fields(kind, data) if one[2] > 0 and 0 <= one[1] <= len(data) - one[2]]
    others = (*paths[number + 1 :], *paths[:number])[:_OTHERS_MAX]
    return _File(
        path,
        kind,
        data,
        extents,
        site.older.get(path, ()),
        [(other, site.tree[other]) for other in others],
        site.random(kind, path),
    )


# ── the kinds of damage, each as a stream for one file ─────────────────────────────────────────────────────


def _flips(file: _File) -> Iterator[Damage]:
    return in_turns(_flips_in(file, group) for group in _groups(file))


def _flips_in(file: _File, group: Sequence[Extent]) -> Iterator[Damage]:
    """One bit of these extents after the other, each far from the last one."""
    ends = list(accumulate(8 * size for _, _, size in group))
    for place in _scattered(ends[-1], file.random.randrange(ends[-1])):
        number = bisect_right(ends, place)
        name, start, size = group[number]
        byte, bit = divmod(place - ends[number] + 8 * size, 8)
        label = f"bit {bit} of byte {start + byte}"
        yield Damage(file.path, file.kind, What.FLIP, start + byte, 1, label, name, bit)


def _groups(file: _File) -> Iterator[Sequence[Extent]]:
    """All fields of one name, name by name, and what lies between fields.

    Of a file without known fields, stretches that grow: every file says what it is at its beginning.
    """
    by_name: dict[str, list[Extent]] = {}
    for one in (*file.extents, *_gaps(file)):
        by_name.setdefault(one[0], []).append(one)
    yield from by_name.values() if file.extents else ([one] for one in _stretches(len(file.data)))


def _gaps(file: _File) -> Iterator[Extent]:
    end = 0
    for _, start, size in sorted((*file.extents, ("", len(file.data), 0)), key=lambda one: one[1]):
        if start > end:
            yield "", end, start - end
        end = max(end, start + size)


def _stretches(size: int) -> Iterator[Extent]:
    start = 0
    while start < size:
        length = min(max(start, _DENSE), size - start)
        yield "", start, length
        start += length


def _zeroed(file: _File) -> Iterator[Damage]:
    return in_turns(_zeroed_of(file, size) for size in BLOCKS)


def _zeroed_of(file: _File, size: int) -> Iterator[Damage]:
    for at in file.blocks(size):
        yield file.block(What.ZEROED, at, bytes(size), f"{size} bytes at {at}")


def _misdirected(file: _File) -> Iterator[Damage]:
    """From the same file and from others in turns: what is sealed against one may take the other."""
    own = in_turns(_misdirected_from(file, file.path, file.data, size) for size in BLOCKS)
    others = in_turns(
        _misdirected_from(file, path, data, size) for path, data in file.others for size in BLOCKS
    )
    return in_turns((own, others))


def _misdirected_from(file: _File, path: str, data: bytes, size: int) -> Iterator[Damage]:
    sources = -(-len(data) // size)
    for pair in _scattered(-(-len(file.data) // size) * sources):
        at, start = size * (pair // sources), size * (pair % sources)
        label = f"{size} bytes at {at} from {path} at {start}"
        yield file.block(What.MISDIRECTED, at, data[start : start + size], label)


def _stale_blocks(file: _File) -> Iterator[Damage]:
    return in_turns(
        _stale_blocks_of(file, number, size) for number in range(len(file.versions)) for size in BLOCKS
    )


def _stale_blocks_of(file: _File, number: int, size: int) -> Iterator[Damage]:
    version = file.versions[number]
    for at in file.blocks(size):
        label = f"{size} bytes at {at} of version {number + 1} of {len(file.versions)}"
        yield file.block(What.STALE_BLOCK, at, version[at : at + size], label)


def _stale_files(file: _File) -> Iterator[Damage]:
    for number, version in enumerate(file.versions, 1):
        yield Damage(
            file.path,
            file.kind,
            What.STALE_FILE,
            size=len(version),
            label=f"version {number} of {len(file.versions)}",
            put=version,
        )


def _truncated(file: _File) -> Iterator[Damage]:
    size = len(file.data)
    at_blocks = in_turns(file.blocks(block) for block in reversed(BLOCKS))
    at_fields = [at for _, start, length in file.extents for at in (start, start + length // 2)]
    file.random.shuffle(at_fields)
    anywhere = _scattered(size, file.random.randrange(size or 1))
    places = chain((size // 2, size - 1), in_turns((at_blocks, iter(at_fields), anywhere)))
    return (file.damage(What.TRUNCATED, at, f"to {at} of {size}") for at in places if at > 0)


def _empty(file: _File) -> Iterator[Damage]:
    yield Damage(file.path, file.kind, What.EMPTY)


def _missing(file: _File) -> Iterator[Damage]:
    yield Damage(file.path, file.kind, What.MISSING)


Stream: TypeAlias = Callable[[_File], Iterator[Damage]]

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


# ── streams ────────────────────────────────────────────────────────────────────────────────────────────────


def in_turns(streams: Iterable[Iterator[T]]) -> Iterator[T]:
    """One of each in turns, until all are at their end."""
    waiting = deque(streams)
    while waiting:
        stream = waiting.popleft()
        for one in islice(stream, 1):
            yield one
            waiting.append(stream)


def _scattered(n: int, first: int = 0) -> Iterator[int]:
    """Every number below n once, any few that follow one another far apart: steps of the golden ratio."""
    step = max(1, round(n * 0.618))
    while gcd(step, n) != 1:
        step += 1
    return ((first + number * step) % n for number in range(n))


def _worthwhile(stream: Iterator[Damage], data: bytes, seen: set[Hashable]) -> Iterator[Damage]:
    """Without those that change nothing, and those that come to the same as an earlier one.

    A file of zeros has as good as no other blocks: too many in a row that are not worthwhile end the stream.
    """
    in_vain = 0
    for damage in stream:
        change = change_of(data, damage)
        if change is None or (damage.path, change) in seen:
            if (in_vain := in_vain + 1) > _PATIENCE:
                return
            continue
        in_vain = 0
        seen.add((damage.path, change))
        yield damage


__all__ = ["Damage", "Tree", "Verdict", "What", "damages", "differences", "in_turns", "judge"]
