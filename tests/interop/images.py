"""Crash images: what the simulated disk leaves of the real store, as a directory of real files.

killed     everything that was written lies there, the last write perhaps by half; nobody has opened it
cut        a power cut has taken what it could; then it was opened, and closed in order
history    many kills and power cuts, openings between them, and the last one closed in order
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from compare import Allowance
from crash_sim import record
from ours import View, log_ends, of_store
from promises import look
from simulated_store import DELETED, REPLICA, Trouble, World, sit_down

from recovery.crashlab import KeepAll, LoseAll, RandomFate
from storage import filenames

if TYPE_CHECKING:
    from pathlib import Path

    from promises import Promises

    from recovery.crashlab import Fate, SimulatedDisk
    from storage import StoreConfig
    from storage.files import Directory
    from storage.store import Store

STEPS = 120
HISTORY_STEPS = 150
_NEVER = 1 << 62
ALLOWED = Allowance(rewritten={REPLICA}, deleted={*DELETED})


@dataclass(frozen=True, slots=True)
class Image:
    """A disk, and what our recovery of it shows."""

    disk: SimulatedDisk
    view: View
    config: StoreConfig
    violations: tuple[str, ...]
    """What of our own promises does not hold: a matter of the crash simulation, and told all the same."""


class _Dead(BaseException):
    """The process ended, and nobody opens the store again."""


class _OneLife(World):
    """A world that ends with its first crash."""

    def _crash(self) -> None:
        raise _Dead


def killed(seed: int) -> Image:
    """Killed before some operation, or within it."""
    dice = Random(f"killed {seed}")
    whole, _ = record(seed, STEPS)
    world = _OneLife(seed, Trouble.REOPENINGS)
    stop = dice.choice([world.disk.stop_before, world.disk.stop_within])
    last = dice.randint(whole.founded + 1, len(whole.disk.trace))
    # Only then: the reboots before it forget where they were to stop.
    world.disk.watch(lambda operation: stop(last) if operation.number == last else None)
    try:
        world.play(STEPS)
    except _Dead:
        pass
    else:
        raise AssertionError("nothing was stopped")
    world.disk.kill()
    twin = world.disk.copy()
    store = sit_down(twin, world.shape.config, dice).store
    return _image(world.disk, store, world.promises, world.shape.config)


def cut(seed: int) -> Image:
    """Cut at some moment, opened, and closed."""
    dice = Random(f"cut {seed}")
    world, moments = record(seed, STEPS)
    moment = dice.choice(moments)
    fates: list[Fate] = [RandomFate(dice.getrandbits(32), world.shape.tearing), LoseAll(), KeepAll()]
    (fate,) = dice.choices(fates, (6, 1, 1))
    moment.disk.power_cut(fate)
    store = sit_down(moment.disk, world.shape.config, dice).store
    return _closed(_image(moment.disk, store, moment.promises, world.shape.config), store)


def history(seed: int) -> Image:
    """Crashes and openings, whatever the seed says."""
    world = World(seed, Trouble.CRASHES)
    world.run(HISTORY_STEPS)
    world.disk.stop_before(_NEVER)
    return _closed(_image(world.disk, world._store, world.promises, world.shape.config), world._store)


def _image(disk: SimulatedDisk, store: Store, promises: Promises, config: StoreConfig) -> Image:
    violations = promises.violations(look(store))
    return Image(disk, of_store(store), config, tuple(violations))


def _closed(image: Image, store: Store) -> Image:
    store.close()
    return replace(image, view=replace(image.view, log_ends=log_ends(store)))


KINDS = {"killed": killed, "cut": cut, "history": history}


def materialise(disk: SimulatedDisk, path: Path) -> None:
    """The disk's files as real ones."""
    _write(disk.root(), path)
    # The simulated disk has an index of its own kind, which no real store can read.
    for made in (path / "ledgers" / "current").glob(f"{filenames.INDEX}*"):
        made.unlink()


def _write(directory: Directory, path: Path) -> None:
    names = directory.names()
    path.mkdir(parents=True)
    for name in names:
        try:
            _write(directory.directory(name), path / name)
        except NotADirectoryError:
            with directory.open(name) as file:
                (path / name).write_bytes(file.read(0, file.size()))
