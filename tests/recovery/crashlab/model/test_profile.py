"""A worse profile allows every state of a more benign one, and each profile prevents what it says."""

from __future__ import annotations

from functools import cache
from random import Random
from typing import TYPE_CHECKING

import pytest
import random_files
from disk_tape import tape_of

from recovery.crashlab import SimulatedDisk
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.fates import NEWEST, REACHED, KeepAll, LoseAll, RandomFate, Tearing
from recovery.crashlab.model.pending import SectorHead, Version
from recovery.crashlab.model.profile import PROFILES, kinder_than, profile_named
from recovery.crashlab.model.real_tree import IgnoredPaths
from recovery.crashlab.record.playback import Playback
from recovery.crashlab.record.tape import Call, Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recovery.crashlab.model.fates import Fate
    from recovery.crashlab.model.pending import Survivors
    from recovery.crashlab.model.platter import Platter

EXT4, SECTOR, STRICT = (PROFILES[name] for name in ("ext4-ordered", "sector-4k", "posix-strict"))
SEEDS = range(4)


@cache
def events(seed: int) -> tuple[Event, ...]:
    disk = SimulatedDisk()
    random_files.churn_simulated(disk.root(), seed)
    return tuple(tape_of(disk.trace))


def platters(name: str, seed: int) -> Iterator[Platter]:
    """Yield a disk with that profile before each sync of a random workload."""
    playback = Playback(PROFILES[name], IgnoredPaths())
    for index, _ in playback.moments(events(seed)):
        if index % 3 == 0:
            yield playback.platter.copy()


def fates(seed: int, count: int = 12) -> list[Fate]:
    draw = Random(seed)
    return [LoseAll(), KeepAll(), *(RandomFate(draw.getrandbits(40), Tearing.HALVES) for _ in range(count))]


def states(name: str, seed: int) -> Iterator[tuple[Platter, Survivors]]:
    profile = PROFILES[name]
    for platter in platters(name, seed):
        pending = platter.pending()
        for fate in fates(seed):
            yield platter, profile.legal(pending, fate.survivors(pending))


@pytest.mark.parametrize("name", ["ext4-ordered", "sector-4k", "posix-strict"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_legal_state_is_not_changed(name: str, seed: int) -> None:
    for platter, survivors in states(name, seed):
        assert PROFILES[name].legal(platter.pending(), survivors) == survivors


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_of_ext4_is_one_of_any_disk_with_sectors_of_4096(seed: int) -> None:
    for platter, survivors in states("ext4-ordered", seed):
        assert SECTOR.legal(platter.pending(), survivors) == survivors


@pytest.mark.parametrize("seed", SEEDS)
def test_every_state_with_sectors_of_4096_is_one_with_sectors_of_512(seed: int) -> None:
    """Each file has a size that is possible there, and each of its sectors is an old one or any that was
    written.
    """
    found = 0
    for (wide, survivors), narrow in zip(
        states("sector-4k", seed),
        (one for one in platters("posix-strict", seed) for _ in fates(seed)),
        strict=True,
    ):
        after = wide.after_cut(survivors)
        assert wide.pending().names == narrow.pending().names
        durable = narrow.after_cut({unit: NEWEST for unit in survivors if unit in narrow.pending().names})
        assert [path for path, _ in durable.seen()] == [path for path, _ in after.seen()]
        for node in after.files:
            found += _is_state_of(after.files[node], narrow.files[node], durable.files[node])
    assert found > 100


def _is_state_of(state, content, durable) -> int:  # type: ignore[no-untyped-def]
    sizes = {durable.size, content.size, *content.sizes}
    # Or where its last sector ends, because a sector of 4096 bytes ends where one of 512 does.
    assert state.size in sizes or state.size % 512 == 0
    whole = durable.read(0, durable.size).ljust(state.size + 512, b"\0")
    data = state.read(0, state.size)
    for start in range(0, state.size, 512):
        sector = data[start : start + 512]
        versions = [whole[start : start + 512], *content.sectors.get(start // 512, ())]
        assert sector in [version[: len(sector)] for version in versions]
    return int(state.size != content.size or data != content.read(0, content.size))


@pytest.mark.parametrize("seed", SEEDS)
def test_names_survive_in_their_order_on_ext4(seed: int) -> None:
    cut_off = 0
    for platter, survivors in states("ext4-ordered", seed):
        names = sorted(platter.pending().names, key=lambda unit: unit.number)
        kept = [unit in survivors for unit in names]
        assert kept == sorted(kept, reverse=True)
        cut_off += 0 < sum(kept) < len(kept)
    assert cut_off > 0


def appended(sizes: list[int], profile: str = "ext4-ordered") -> Platter:
    """Return a log that was appended to, with nothing synced but its name."""
    playback = Playback(PROFILES[profile], IgnoredPaths())
    playback.play_all([Event(Call.CREATE, path="log", inode=1), Event(Call.SYNC_ALL, path=".")])
    at = 0
    for size in sizes:
        data = bytes(1 + (at + index) % 255 for index in range(size))
        playback.play(Event(Call.WRITE, path="log", inode=1, offset=at, length=size, data=data))
        at += size
    return playback.platter


def logs(platter: Platter, profile: str, seed: int) -> Iterator[bytes]:
    pending = platter.pending()
    for fate in fates(seed, 300):
        after = platter.after_cut(PROFILES[profile].legal(pending, fate.survivors(pending)))
        yield real_tree.visible_tree(after)["log"]


@pytest.mark.parametrize("sizes", [[100, 200, 5000, 40, 9000], [4096, 1, 4095], [10] * 50])
def test_a_log_that_was_only_appended_to_is_a_beginning_of_itself_on_ext4(sizes: list[int]) -> None:
    whole = real_tree.visible_tree(appended(sizes))["log"]

    found = set(logs(appended(sizes), "ext4-ordered", 7))

    assert len(found) > 2
    assert [log for log in found if not whole.startswith(log)] == []
    # Elsewhere it may have holes of zeros, and older sectors.
    assert [log for log in logs(appended(sizes, "sector-4k"), "sector-4k", 7) if not whole.startswith(log)]


def test_no_sector_is_torn() -> None:
    platter = appended([9000], "sector-4k")
    pending = platter.pending()
    torn: Survivors = dict.fromkeys(pending.sectors, SectorHead(512))

    assert set(SECTOR.legal(pending, torn).values()) == {NEWEST}
    assert set(STRICT.legal(pending, torn).values()) == {NEWEST}


def test_on_ext4_a_size_that_survives_reaches_as_far_as_its_bytes() -> None:
    platter = appended([4096, 4096, 100])
    pending = platter.pending()
    (size,), (first, second, third) = pending.sizes, pending.sectors

    assert EXT4.legal(pending, {size: NEWEST, first: NEWEST, third: NEWEST}) == {size: REACHED, first: NEWEST}
    assert EXT4.legal(pending, {size: NEWEST}) == {size: REACHED}
    assert EXT4.legal(pending, {second: NEWEST}) == {}
    assert EXT4.legal(pending, {size: Version(0), first: NEWEST, second: NEWEST, third: Version(0)}) == {
        size: Version(0), first: NEWEST, second: NEWEST, third: NEWEST,
    }  # fmt: skip


def test_profiles_are_ordered_from_the_most_benign_to_the_worst() -> None:
    assert [one.name for one in kinder_than(STRICT)] == ["ext4-ordered", "sector-4k", "posix-strict"]
    assert kinder_than(EXT4) == [EXT4]
    assert [one.name for one in PROFILES.values() if not one.keeps_promises] == ["lying-disk"]
    with pytest.raises(ValueError, match="no profile 'ext5': there are ext4-ordered, "):
        profile_named("ext5")
