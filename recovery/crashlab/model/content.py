"""The content of one file in two layers: the cache, which reads see, and the durable platter.

Content is a list of immutable sectors, so that copies share sectors and a power cut replaces only a few.
"""

from __future__ import annotations

from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING

from recovery.crashlab.model.disk_errors import Pages
from recovery.crashlab.model.pending import (
    Newest,
    Reached,
    SectorHead,
    SectorRuined,
    SectorTail,
    Survival,
    Version,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


class Content:
    """The bytes of one file, in the cache and on the platter."""

    __slots__ = (
        "_cache",
        "_cut_off",
        "_digest",
        "_durable_size",
        "_forgot",
        "_platter",
        "_zero",
        "sector_size",
        "sectors",
        "size",
        "sizes",
    )

    def __init__(self, sector_size: int) -> None:
        self.sector_size = sector_size
        self.size = 0
        # The sizes the file has had since the last sync, and every version of each sector written since then.
        self.sizes: tuple[int, ...] = ()
        self.sectors: dict[int, tuple[bytes, ...]] = {}
        # Versions of sectors that a truncation wrote. The value is the index in `sizes` of the truncated
        # size.
        self._cut_off: dict[tuple[int, int], int] = {}
        self._zero = bytes(sector_size)
        self._cache: list[bytes] = []
        self._platter: list[bytes] = []
        self._durable_size = 0
        self._forgot = False
        self._digest: bytes | None = None

    def copy(self) -> Content:
        """Return an independent copy of both layers."""
        twin = Content(self.sector_size)
        twin.size, twin.sizes, twin.sectors = self.size, self.sizes, dict(self.sectors)
        twin._cache, twin._platter = self._cache.copy(), self._platter.copy()
        twin._cut_off = dict(self._cut_off)
        twin._durable_size, twin._forgot, twin._digest = self._durable_size, self._forgot, self._digest
        return twin

    @property
    def allocated(self) -> int:
        return len(self._cache) * self.sector_size

    def read(self, offset: int, size: int) -> bytes:
        end = min(offset + size, self.size)
        if offset >= end:
            return b""
        first, skip = divmod(offset, self.sector_size)
        block = b"".join(self._cache[first : _ceil(end, self.sector_size)])
        return block[skip : skip + end - offset]

    def write(self, offset: int, data: bytes) -> None:
        """Write bytes into the cache. They are durable after the next sync."""
        if not data:
            return
        first, skip = divmod(offset, self.sector_size)
        end = offset + len(data)
        behind = _ceil(end, self.sector_size)
        self._cache += [self._zero] * (behind - len(self._cache))
        block = bytearray(b"".join(self._cache[first:behind]))
        block[skip : skip + len(data)] = data
        for index in range(first, behind):
            start = (index - first) * self.sector_size
            self._put(index, bytes(block[start : start + self.sector_size]))
        if end > self.size:
            self.size = end
            self.sizes = (*self.sizes, end)
        self._digest = None

    def truncate(self, size: int) -> None:
        """Shorten the file, or extend it with zeros. The new size is durable after the next sync."""
        count = _ceil(size, self.sector_size)
        if size < self.size:
            # Write zeros to the sectors that are cut off, because reads would see zeros if the file grew
            # again.
            for index in range(count, len(self._cache)):
                self._put(index, self._zero)
                self._cut_off[index, len(self.sectors[index]) - 1] = len(self.sizes)
            del self._cache[count:]
            if rest := size % self.sector_size:
                self._put(count - 1, self._cache[-1][:rest] + self._zero[rest:])
        self._cache += [self._zero] * (count - len(self._cache))
        if size != self.size:
            self.size = size
            self.sizes = (*self.sizes, size)
        self._digest = None

    def _put(self, index: int, sector: bytes) -> None:
        # use one object for all zero sectors, so that the digest of a zero-filled file is cheap
        if sector == self._zero:
            sector = self._zero
        self._cache[index] = sector
        self.sectors[index] = (*self.sectors.get(index, ()), sector)

    def sync(self) -> None:
        """Make all pending writes and sizes durable."""
        for index in self.sectors:
            self._keep(index)
        if self.sizes:
            self._keep_size()
        self._mark_clean()

    def sync_range(self, offset: int, size: int) -> None:
        """Make these bytes durable, and the size that they need, as a write with O_DSYNC does."""
        for index in range(offset // self.sector_size, _ceil(offset + size, self.sector_size)):
            if self.sectors.pop(index, None) is not None:
                self._keep(index)
        if self.sizes and self._durable_size == self.size:
            self.sizes = ()
        is_open = bool(self.sizes)
        self._cut_off = {
            one: size for one, size in self._cut_off.items() if is_open and one[0] in self.sectors
        }

    def _keep_size(self) -> None:
        self._durable_size = self.size
        del self._platter[_ceil(self.size, self.sector_size) :]

    def fail_sync(self, seed: int, pages: Pages) -> None:
        """Write back a part of the pending data, and mark the rest clean so that no sync writes it."""
        choose = Random(seed)
        for index in sorted(self.sectors):
            if choose.random() < 0.5:
                self._keep(index)
            elif pages is Pages.EVICTED and index < len(self._cache):
                self._cache[index] = self._platter[index] if index < len(self._platter) else self._zero
                self._digest = None
        if self.sizes and choose.random() < 0.5:
            self._keep_size()
        self._mark_clean()
        self._forgot = True

    def _keep(self, index: int) -> None:
        self._platter += [self._zero] * (index + 1 - len(self._platter))
        self._platter[index] = self._cache[index] if index < len(self._cache) else self._zero
        # A durable sector implies a size that contains it, even if an earlier sync failed to write that size.
        self._durable_size = max(self._durable_size, min(self.size, (index + 1) * self.sector_size))

    def _mark_clean(self) -> None:
        self.sizes = ()
        self.sectors = {}
        self._cut_off = {}

    @property
    def settled(self) -> bool:
        """Return whether both layers are equal, so that a power cut changes nothing."""
        return not (self.sectors or self.sizes or self._forgot)

    def after_cut(self, growth: Survival | None, survivors: Mapping[int, Survival]) -> Content:
        """Return the file as it is after a power cut."""
        after = Content(self.sector_size)
        size = self._size_after(growth, survivors)
        count = _ceil(size, self.sector_size)
        platter = self._platter[:count]
        platter += [self._zero] * (count - len(platter))
        for index, survival in survivors.items():
            if index < count and self._may_survive(index, survival, growth):
                platter[index] = self._sector_after(platter[index], self.sectors[index], survival)
        if rest := size % self.sector_size:
            platter[-1] = platter[-1][:rest] + self._zero[rest:]
        after.size = after._durable_size = size
        after._platter = platter
        after._cache = platter.copy()
        return after

    def _size_after(self, growth: Survival | None, survivors: Mapping[int, Survival]) -> int:
        match growth:
            case Newest():
                return self.size
            case Version(index):
                return self.sizes[index]
            case Reached():
                reach = (max(survivors, default=-1) + 1) * self.sector_size
                return max(self._durable_size, min(self.size, reach))
            case _:
                return self._durable_size

    def _may_survive(self, index: int, survival: Survival, growth: Survival | None) -> bool:
        """Return whether the sector can have that version: zeros of a lost truncation are not written."""
        version = survival.index if isinstance(survival, Version) else len(self.sectors[index]) - 1
        size = self._cut_off.get((index, version))
        if size is None:
            return True
        match growth:
            case Newest():
                return True
            case Version(reached):
                return reached >= size
            case Reached():
                return self.size > self._durable_size
            case _:
                return False

    def _sector_after(self, old: bytes, versions: tuple[bytes, ...], survival: Survival) -> bytes:
        match survival:
            case Version(index):
                return versions[index]
            case SectorHead(size):
                return versions[-1][:size] + old[size:]
            case SectorTail(size):
                return old[:-size] + versions[-1][-size:]
            case SectorRuined(seed):
                return Random(seed).randbytes(self.sector_size)
            case _:
                return versions[-1]

    def digest(self) -> bytes:
        """Return a hash of what reads see. It is the same in every process."""
        if self._digest is None:
            hasher = blake2b(self.size.to_bytes(8, "big"), digest_size=16)
            for index, sector in enumerate(self._cache):
                if sector != self._zero:
                    hasher.update(index.to_bytes(8, "big"))
                    hasher.update(sector)
            self._digest = hasher.digest()
        return self._digest


def _ceil(size: int, unit: int) -> int:
    return -(-size // unit)
