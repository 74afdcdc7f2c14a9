"""Crash a little store at every moment of a run, recover it, and check what is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from little_store import Contradiction, LittleStore, LittleStoreFailed

from recovery.crashlab import LoseAll, RandomFate, SimulatedDisk, Stopped, Verb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from recovery.crashlab import Fate, Fault, Operation

Records = tuple[bytes, ...]


@dataclass(frozen=True)
class WalkMoment:
    """A copy of the disk before an operation of this verb, and the promises at that time."""

    verb: Verb | None
    disk: SimulatedDisk
    invoked: Records
    acknowledged: Records
    what: str


@dataclass
class WalkClient:
    """Appends records, and remembers which were requested and which were acknowledged."""

    store_class: type[LittleStore]
    invoked: list[bytes] = field(default_factory=list)
    acknowledged: list[bytes] = field(default_factory=list)

    def run(self, disk: SimulatedDisk) -> None:
        """Run three sessions with checkpoints between appends. An error ends a session, as it should."""
        for sitting in range(3):
            try:
                with self.store_class(disk.root()) as store:
                    self._sit(store, sitting)
            except (OSError, LittleStoreFailed):
                continue

    def _sit(self, store: LittleStore, sitting: int) -> None:
        for number, size in enumerate((700, 40, 1300, 9)):
            self._append(store, b"%d.%d." % (sitting, number) + bytes([65 + number]) * size)
            if number == 1:
                store.checkpoint()

    def _append(self, store: LittleStore, record: bytes) -> None:
        self.invoked.append(record)
        try:
            store.append(record)
        except (OSError, LittleStoreFailed):
            return  # not acknowledged; the client goes on with its next record
        self.acknowledged.append(record)

    def moment(self, disk: SimulatedDisk, what: str, verb: Verb | None = None) -> WalkMoment:
        return WalkMoment(verb, disk.copy(), tuple(self.invoked), tuple(self.acknowledged), what)


def moments(store_class: type[LittleStore], sector_size: int = 512, *faults: Fault) -> list[WalkMoment]:
    """Return the disk before each operation of a run, and at its end."""
    disk, client, found = SimulatedDisk(sector_size=sector_size), WalkClient(store_class), []

    def note(operation: Operation) -> None:
        what = f"before {operation.number}, {operation.verb} {operation.path}"
        found.append(client.moment(disk, what, operation.verb))

    disk.watch(note)
    for fault in faults:
        disk.plant(fault)
    client.run(disk)
    return [*found, client.moment(disk, "at the end")]


def before_syncs(moments: Iterable[WalkMoment]) -> Iterator[WalkMoment]:
    """Return the moments before syncs. They suffice for power cuts: what an earlier moment could leave, the
    next sync's can too."""
    return (moment for moment in moments if moment.verb in {Verb.SYNC, Verb.SYNC_DIRECTORY, None})


def half_written_moments(store_class: type[LittleStore], sector_size: int = 512) -> Iterator[WalkMoment]:
    """Return the disk in the middle of each write of a run."""
    whole = SimulatedDisk(sector_size=sector_size)
    WalkClient(store_class).run(whole)
    for operation in whole.trace:
        if operation.verb is Verb.WRITE:
            disk, client = SimulatedDisk(sector_size=sector_size), WalkClient(store_class)
            disk.stop_within(operation.number)
            try:
                client.run(disk)
            except Stopped as stopped:
                yield client.moment(disk, f"{stopped}")


@dataclass
class Walk:
    """Recovers each distinct disk once, and compares the result with every moment that led to this disk."""

    store_class: type[LittleStore]
    recovered: dict[str, Records | str] = field(default_factory=dict)

    def violations(self, moments: Iterable[WalkMoment], random_fates: int = 0) -> Iterator[str]:
        for moment in moments:
            fates: list[Fate] = [
                *moment.disk.fates(exhaustive_up_to=6),
                *map(RandomFate, range(random_fates)),
            ]
            for fate in fates:
                after = moment.disk.copy()
                after.power_cut(fate)
                if problem := contradiction(self._recover_once(after), moment):
                    yield f"{moment.what} · {getattr(fate, 'label', fate)} · {problem}"
            after = moment.disk.copy()
            after.kill()
            # Recovered each time, because the image after a kill does not show which of its bytes are
            # durable.
            if problem := contradiction(recover_twice(self.store_class, after), moment):
                yield f"{moment.what} · kill · {problem}"

    def _recover_once(self, after: SimulatedDisk) -> Records | str:
        image = after.image()
        if image not in self.recovered:
            self.recovered[image] = recover_twice(self.store_class, after)
        return self.recovered[image]


def recover_twice(store_class: type[LittleStore], disk: SimulatedDisk) -> Records | str:
    """Return what recovery shows, or what is wrong with it, for example a different result of a second
    recovery."""
    try:
        once = recover(store_class, disk)
        disk.power_cut(LoseAll())
        twice = recover(store_class, disk)
    except (OSError, LittleStoreFailed, Contradiction) as error:
        return f"refused: {error!r}"
    return once if once == twice else "a second recovery finds something else"


def recover(store_class: type[LittleStore], disk: SimulatedDisk) -> Records:
    with store_class(disk.root()) as store:
        return tuple(store.records)


def contradiction(found: Records | str, moment: WalkMoment) -> str:
    """Return why this cannot be the outcome of that moment, or an empty text."""
    if isinstance(found, str):
        return found
    if lost := set(moment.acknowledged) - set(found):
        return f"lost {sorted(record[:4] for record in lost)}"
    if [record for record in moment.invoked if record in set(found)] != list(found):
        return "records that were never appended, or in another order"
    return ""
