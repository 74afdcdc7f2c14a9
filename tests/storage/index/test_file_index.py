"""The tests' index on a simulated disk survives every crash, and planted mistakes in it are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from file_index import FileIndexContent, FileIndexPlace, encode

from recovery.crashlab import KeepAll, LoseAll, RandomFate, SimulatedDisk
from storage.entry.ledger_record import LedgerRecord
from storage.entry.read_result import Damaged, Flaw
from storage.index.port import NoIndex
from storage.index.state import IndexState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from file_index import FileChange

    from recovery.crashlab import Fate, Operation
    from storage.disk.files import WriteFile

GENERATIONS = 4
ENTRIES = 60


class Client:
    """Creates an index and commits to it. Knows the last answered generation, and which may be found."""

    def __init__(self, place_class: type[FileIndexPlace]) -> None:
        self._place_class = place_class
        self.acknowledged = 0
        self.invoked = 0

    def run(self, disk: SimulatedDisk) -> None:
        place = self._place_class(disk.root())
        draft = place.draft()
        with draft.change() as change:
            self._commit(change, 1)
        index = draft.publish()
        self.acknowledged = 1
        for generation in range(2, GENERATIONS + 1):
            with index.change() as change:
                self._commit(change, generation)
            self.acknowledged = generation

    def _commit(self, change: FileChange, generation: int) -> None:
        self.invoked = generation
        change.put(1, range(ENTRIES), [generation] * ENTRIES)
        change.remove([10 + generation - 1])
        change.put(10 + generation, [0], [generation])
        change.put_rows([LedgerRecord(1, generation)])
        change.commit(IndexState(generation))


def problems(place_class: type[FileIndexPlace]) -> Iterator[str]:
    """Return what is wrong after a crash at any moment of a run."""
    disk, client = SimulatedDisk(), Client(place_class)
    moments: list[tuple[SimulatedDisk, int, int, str]] = []

    def note(operation: Operation) -> None:
        what = f"before {operation.number}, {operation.verb}"
        moments.append((disk.copy(), client.acknowledged, client.invoked, what))

    disk.watch(note)
    client.run(disk)
    moments.append((disk.copy(), GENERATIONS, GENERATIONS, "at the end"))
    for moment, acknowledged, invoked, what in moments:
        for after in crashed(moment):
            found = generation_in(place_class, after)
            if not (isinstance(found, int) and acknowledged <= found <= invoked):
                yield f"{what}: {found} of {acknowledged} to {invoked}"


def crashed(moment: SimulatedDisk) -> Iterator[SimulatedDisk]:
    fates: list[Fate] = [*moment.fates(), *map(RandomFate, range(20))]
    for fate in fates:
        after = moment.copy()
        after.power_cut(fate)
        yield after
    after = moment.copy()
    after.kill()
    yield after


def generation_in(place_class: type[FileIndexPlace], disk: SimulatedDisk) -> int | str:
    """Check what an opening finds, makes durable, and finds again."""
    found = generation_found(place_class, disk)
    disk.power_cut(LoseAll())
    again = generation_found(place_class, disk)
    return found if found == again else f"{found}, and then {again}"


def generation_found(place_class: type[FileIndexPlace], disk: SimulatedDisk) -> int | str:
    place = place_class(disk.root())
    index = place.open()
    if isinstance(index, NoIndex):
        return 0
    if isinstance(index, Damaged):
        return f"{index}"
    index.sync()
    generation = index.state().generation
    whole = [(entry_id, generation) for entry_id in range(ENTRIES)]
    is_whole = (
        index.locations(1, 0, ENTRIES + 1) == whole
        and list(index.ledgers()) == [1, 10 + generation]
        and list(index.rows()) == [LedgerRecord(1, generation)]
    )
    return generation if is_whole else "half a change"


def test_the_index_survives_every_crash() -> None:
    assert list(problems(FileIndexPlace)) == []


class NoSyncOfTheDraft(FileIndexPlace):
    def _sync_draft(self, draft: WriteFile) -> None:
        pass


class NoSyncOfTheName(FileIndexPlace):
    def sync_name(self) -> None:
        pass


class RenamedBeforeItIsWritten(FileIndexPlace):
    def _write_draft(self, draft: WriteFile, data: bytes) -> None:
        self._rename_draft()
        super()._write_draft(draft, data)
        self._directory.rename("index", "index.draft")


@pytest.mark.parametrize("mistaken", [NoSyncOfTheDraft, NoSyncOfTheName, RenamedBeforeItIsWritten])
def test_no_wrong_argument_stops_the_store(mistaken: type[FileIndexPlace]) -> None:
    assert list(problems(mistaken)) != []


def test_a_flipped_bit_is_damage() -> None:
    data = encode(FileIndexContent(IndexState(3), {1: {0: 5}}, {1: LedgerRecord(1, 2)}))
    for place in range(len(data)):
        disk = SimulatedDisk()
        with disk.root().create("index") as file:
            file.write(0, [data[:place], bytes([data[place] ^ 1]), data[place + 1 :]])
        found = FileIndexPlace(disk.root()).open()
        assert isinstance(found, Damaged)
        assert found.flaw is Flaw.CHECKSUM


def test_the_same_history_leaves_the_same_bytes() -> None:
    images = set()
    for _ in range(2):
        disk = SimulatedDisk()
        Client(FileIndexPlace).run(disk)
        disk.power_cut(KeepAll())
        images.add(disk.image())
    assert len(images) == 1


def test_a_failed_commit_changes_nothing_that_is_read() -> None:
    class Refusing(FileIndexPlace):
        def _rename_draft(self) -> None:
            raise OSError("refused")

    disk = SimulatedDisk()
    Client(FileIndexPlace).run(disk)
    index = Refusing(disk.root()).open()
    assert not isinstance(index, NoIndex | Damaged)
    with index.change() as change:
        change.put(1, [0], [99])
        change.remove([1])
        change.put_rows([LedgerRecord(1, 99)])
        with pytest.raises(OSError, match="refused"):
            change.commit(IndexState(5))
    assert (index.find(1, 0), index.state().generation) == (GENERATIONS, GENERATIONS)
    assert list(index.rows()) == [LedgerRecord(1, GENERATIONS)]
