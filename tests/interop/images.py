"""Crash images: the files that a simulated crash leaves of a store, written to a real directory.

killed     everything that was written is there, the last write perhaps by half; not opened since
cut        a power cut has removed unsynced writes; then the store was opened, and closed cleanly
history    many kills and power cuts, with openings between them; after the last one closed cleanly
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from compare import Allowance
from crash_sim import record
from our_store import StoreContent, log_ends, of_store
from simulated_store import DELETED, REPLICA, SimulatedWorld, Trouble, open_session
from store_promises import look

from recovery.crashlab import KeepAll, LoseAll, RandomFate
from storage.disk import filenames

if TYPE_CHECKING:
    from pathlib import Path

    from store_promises import StorePromises

    from recovery.crashlab import Fate, SimulatedDisk
    from storage import StoreConfig
    from storage.disk.files import Directory
    from storage.store import Store

STEPS = 120
HISTORY_STEPS = 150
_NEVER = 1 << 62
ALLOWED = Allowance(rewritten={REPLICA}, deleted={*DELETED})


@dataclass(frozen=True, slots=True)
class InteropImage:
    """A simulated disk after a crash, and what our recovery shows of it."""

    disk: SimulatedDisk
    view: StoreContent
    config: StoreConfig
    violations: tuple[str, ...]
    """Our own promises that do not hold. The crash simulation tests these; they are reported here too."""


class _ProcessEnded(BaseException):
    """The simulated process ended, and the store is not opened again."""


class _EndsAtFirstCrash(SimulatedWorld):
    """Ends at the first crash."""

    def _crash(self) -> None:
        raise _ProcessEnded


def killed(seed: int) -> InteropImage:
    """Kill the process before some operation, or within it."""
    dice = Random(f"killed {seed}")
    whole, _ = record(seed, STEPS)
    world = _EndsAtFirstCrash(seed, Trouble.REOPENINGS)
    stop = dice.choice([world.disk.stop_before, world.disk.stop_within])
    last = dice.randint(whole.founded + 1, len(whole.disk.trace))
    # The stop is set only when the last operation begins, because each earlier reboot clears it.
    world.disk.watch(lambda operation: stop(last) if operation.number == last else None)
    try:
        world.play(STEPS)
    except _ProcessEnded:
        pass
    else:
        raise AssertionError("nothing was stopped")
    world.disk.kill()
    twin = world.disk.copy()
    store = open_session(twin, world.shape.config, dice).store
    return _image(world.disk, store, world.promises, world.shape.config)


def cut(seed: int) -> InteropImage:
    """Cut the power at some moment, then open and close the store."""
    dice = Random(f"cut {seed}")
    world, moments = record(seed, STEPS)
    moment = dice.choice(moments)
    fates: list[Fate] = [RandomFate(dice.getrandbits(32), world.shape.tearing), LoseAll(), KeepAll()]
    (fate,) = dice.choices(fates, (6, 1, 1))
    moment.disk.power_cut(fate)
    store = open_session(moment.disk, world.shape.config, dice).store
    return _closed(_image(moment.disk, store, moment.promises, world.shape.config), store)


def history(seed: int) -> InteropImage:
    """Play crashes and openings as the seed decides."""
    world = SimulatedWorld(seed, Trouble.CRASHES)
    world.run(HISTORY_STEPS)
    world.disk.stop_before(_NEVER)
    return _closed(_image(world.disk, world.store, world.promises, world.shape.config), world.store)


def _image(disk: SimulatedDisk, store: Store, promises: StorePromises, config: StoreConfig) -> InteropImage:
    violations = promises.violations(look(store))
    return InteropImage(disk, of_store(store), config, tuple(violations))


def _closed(image: InteropImage, store: Store) -> InteropImage:
    store.close()
    return replace(image, view=replace(image.view, log_ends=log_ends(store)))


KINDS = {"killed": killed, "cut": cut, "history": history}


def materialise(disk: SimulatedDisk, path: Path) -> None:
    """Write the simulated disk's files to a real directory."""
    _write(disk.root(), path)
    # The index of a simulated store is not LMDB's, so no real store can read it.
    for index_file in (path / "ledgers" / "current").glob(f"{filenames.INDEX}*"):
        index_file.unlink()


def _write(directory: Directory, path: Path) -> None:
    names = directory.names()
    path.mkdir(parents=True)
    for name in names:
        try:
            _write(directory.directory(name), path / name)
        except NotADirectoryError:
            with directory.open(name) as file:
                (path / name).write_bytes(file.read(0, file.size()))
