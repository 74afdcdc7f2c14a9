"""The simulated disk does what a fault says, and its trace records it."""

from __future__ import annotations

import errno
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import (
    FailedSync,
    Fault,
    Lasting,
    LoseAll,
    Pages,
    Refused,
    ShortWrite,
    SimulatedDisk,
    Verb,
    When,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from storage.disk.files import Directory, WriteFile


def content(directory: Directory, name: str) -> bytes:
    with directory.open(name) as file:
        return file.read(0, file.size())


def disk_with(name: str, written: bytes) -> tuple[SimulatedDisk, WriteFile]:
    disk = SimulatedDisk()
    file = disk.root().create(name)
    file.write(0, [written])
    file.sync()
    disk.root().sync()
    return disk, file


REFUSABLE: dict[Verb, Callable[[Directory, WriteFile], object]] = {
    Verb.CREATE: lambda directory, _: directory.create("b"),
    Verb.WRITE: lambda _, file: file.write(0, [b"new"]),
    Verb.ZERO_FILL: lambda _, file: file.zero_fill(0, 9),
    Verb.SYNC: lambda _, file: file.sync(),
    Verb.RENAME: lambda directory, _: directory.rename("a", "b"),
    Verb.REMOVE: lambda directory, _: directory.remove("a"),
    Verb.MAKE: lambda directory, _: directory.directory("inner").make(),
    Verb.SYNC_DIRECTORY: lambda directory, _: directory.sync(),
    Verb.LOCK: lambda directory, _: directory.lock("lock"),
    Verb.NAMES: lambda directory, _: directory.names(),
    Verb.OPEN: lambda directory, _: directory.open("a"),
    Verb.READ: lambda directory, _: content(directory, "a"),
}


@pytest.mark.parametrize("verb", Verb)
def test_a_refused_operation_raises_and_changes_nothing(verb: Verb) -> None:
    disk, file = disk_with("a", b"old")
    image = disk.image()
    disk.plant(Refused(When(verb=verb)))

    with pytest.raises(OSError, match="/") as refused:
        REFUSABLE[verb](disk.root(), file)
    assert refused.value.errno == errno.EIO
    assert disk.image() == image
    REFUSABLE[verb](disk.root(), file)


def test_a_refused_sync_leaves_its_bytes_waiting_for_the_next() -> None:
    disk, file = disk_with("a", b"old")
    disk.plant(Refused(When(verb=Verb.SYNC)))
    file.write(0, [b"new"])
    with pytest.raises(OSError):  # noqa: PT011 - any
        file.sync()
    file.sync()

    disk.power_cut(LoseAll())
    assert content(disk.root(), "a") == b"new"


def test_a_fault_strikes_the_operation_it_was_planted_for() -> None:
    disk, file = disk_with("a", b"old")
    other = disk.root().create("b")
    disk.plant(Refused(When(verb=Verb.WRITE, name="a", nth=2)))

    file.write(0, [b"1"])
    other.write(0, [b"1"])
    with pytest.raises(OSError, match="/a"):
        file.write(0, [b"2"])
    file.write(0, [b"3"])


def test_a_fault_may_name_the_number_of_an_operation() -> None:
    disk, file = disk_with("a", b"old")
    disk.plant(Refused(When(number=6)))

    file.sync()
    with pytest.raises(OSError, match="/a"):
        file.sync()


def test_a_lasting_fault_strikes_until_it_is_mended() -> None:
    disk, file = disk_with("a", b"old")
    disk.plant(Refused(When(verb=Verb.WRITE, lasting=Lasting.UNTIL_MENDED), errno.ENOSPC))

    for _ in range(3):
        with pytest.raises(OSError) as full:  # noqa: PT011 - its number is checked
            file.write(0, [b"x"])
        assert full.value.errno == errno.ENOSPC
    disk.mend()
    file.write(0, [b"x"])


def test_a_rename_is_matched_by_either_name() -> None:
    for name in ("draft", "/mark"):
        disk, _ = disk_with("draft", b"x")
        disk.plant(Refused(When(verb=Verb.RENAME, name=name)))
        with pytest.raises(OSError, match="draft"):
            disk.root().rename("draft", "mark")


@pytest.mark.parametrize(
    ("accepted", "left"), [(None, b"newold"), (1, b"nldold"), (0, b"oldold"), (99, b"newnew")]
)
def test_a_short_write_leaves_its_first_bytes(accepted: int | None, left: bytes) -> None:
    disk, file = disk_with("a", b"oldold")
    disk.plant(ShortWrite(When(), accepted=accepted))

    with pytest.raises(OSError) as short:  # noqa: PT011 - its number is checked
        file.write(0, [b"new", b"new"])
    assert short.value.errno == errno.ENOSPC
    assert content(disk.root(), "a") == left


class TestFailedSync:
    def gated(self, seed: int) -> SimulatedDisk:
        disk, file = disk_with("a", b"o" * 512 * 8)
        file.write(0, [b"n" * 512 * 8])
        disk.plant(FailedSync(When(), seed=seed))
        with pytest.raises(OSError):  # noqa: PT011 - any
            file.sync()
        file.sync()
        return disk

    def test_bytes_of_a_failed_sync_are_readable_and_a_second_sync_does_not_save_them(self) -> None:
        disk = self.gated(seed=1)

        assert content(disk.root(), "a") == b"n" * 512 * 8
        assert disk.pending().units == ()
        disk.kill()
        assert content(disk.root(), "a") == b"n" * 512 * 8
        disk.power_cut(LoseAll())
        assert content(disk.root(), "a") != b"n" * 512 * 8

    def test_pages_of_a_failed_sync_may_be_evicted_so_that_reads_show_the_old_bytes(self) -> None:
        disk, file = disk_with("a", b"o" * 512 * 8)
        file.write(0, [b"n" * 512 * 8])
        disk.plant(FailedSync(When(), seed=1, pages=Pages.EVICTED))
        with pytest.raises(OSError):  # noqa: PT011 - any
            file.sync()

        seen = content(disk.root(), "a")
        assert {seen[at : at + 512] for at in range(0, len(seen), 512)} == {b"o" * 512, b"n" * 512}
        disk.power_cut(LoseAll())
        assert content(disk.root(), "a") == seen

    def test_the_seed_decides_which_units_a_failed_sync_saves(self) -> None:
        images = []
        for seed in (*range(20), *range(20)):
            disk = self.gated(seed)
            disk.power_cut(LoseAll())
            images.append(disk.image())

        assert images[:20] == images[20:]
        assert len(set(images)) > 10

    def test_bytes_written_after_a_failed_sync_are_durable_with_the_next_sync(self) -> None:
        disk, file = disk_with("a", b"")
        for seed in range(10):
            file.write(seed * 2000, [b"forgotten"])
            disk.plant(FailedSync(When(verb=Verb.SYNC), seed=seed))
            with pytest.raises(OSError):  # noqa: PT011 - any
                file.sync()
            file.write(seed * 2000 + 1000, [b"saved"])
            file.sync()
            cut = disk.copy()
            cut.power_cut(LoseAll())
            assert content(cut.root(), "a")[-5:] == b"saved"

    @pytest.mark.parametrize("seed", range(10))
    def test_a_size_lost_by_a_failed_sync_does_not_hide_later_synced_bytes(self, seed: int) -> None:
        disk, file = disk_with("a", b"")
        file.write(0, [b"forgotten" * 300])
        disk.plant(FailedSync(When(), seed=seed))
        with pytest.raises(OSError):  # noqa: PT011 - any
            file.sync()
        file.write(1500, [b"saved"])
        file.sync()
        disk.power_cut(LoseAll())

        assert content(disk.root(), "a")[1500:1505] == b"saved"

    def test_a_failed_sync_of_a_directory_loses_names_in_the_same_way(self) -> None:
        survived = set()
        for seed in range(20):
            disk = SimulatedDisk()
            disk.root().create("a")
            disk.root().create("b")
            disk.plant(FailedSync(When(), seed=seed))
            with pytest.raises(OSError):  # noqa: PT011 - any
                disk.root().sync()
            disk.root().sync()
            assert disk.root().names() == ["a", "b"]
            disk.power_cut(LoseAll())
            survived.add("".join(disk.root().names()))
        assert survived == {"", "a", "b", "ab"}


class TestCapacity:
    def test_a_full_disk_takes_what_fits_and_raises(self) -> None:
        disk = SimulatedDisk(capacity=1024)
        file = disk.root().create("a")
        file.write(0, [b"x" * 400])

        with pytest.raises(OSError) as full:  # noqa: PT011 - its number is checked
            file.write(400, [b"y" * 1000])
        assert full.value.errno == errno.ENOSPC
        assert content(disk.root(), "a") == b"x" * 400 + b"y" * 624

    def test_bytes_in_allocated_space_still_fit(self) -> None:
        disk = SimulatedDisk(capacity=1024)
        file = disk.root().create("a")
        file.zero_fill(0, 1024)

        file.write(0, [b"x" * 1024])
        assert content(disk.root(), "a") == b"x" * 1024

    @pytest.mark.parametrize("give", [lambda disk: disk.root().remove("a"), lambda disk: disk.limit(4096)])
    def test_space_given_back_can_be_used(self, give: Callable[[SimulatedDisk], None]) -> None:
        disk = SimulatedDisk(capacity=1024)
        disk.root().create("a").write(0, [b"x" * 1024])
        other = disk.root().create("b")
        with pytest.raises(OSError):  # noqa: PT011 - any
            other.write(0, [b"y"])
        give(disk)

        other.write(0, [b"y" * 1024])


class TestTrace:
    def workload(self, disk: SimulatedDisk) -> None:
        inner = disk.root().directory("inner")
        inner.make()
        inner.lock("lock")
        file = inner.create("draft")
        file.write(8, [b"abc", b"de"])
        file.zero_fill(13, 3)
        file.sync()
        inner.rename("draft", "a")
        inner.sync()
        content(inner, "a")
        with pytest.raises(OSError, match="a"):
            inner.remove("a")

    def traced(self) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.plant(Refused(When(verb=Verb.REMOVE)))
        self.workload(disk)
        return disk

    def test_the_trace_lists_changes_and_syncs_but_no_reads(self) -> None:
        rows = [tuple(asdict(operation).values())[:7] for operation in self.traced().trace]

        assert rows == [
            (1, "make", "/inner", 0, 0, "", "done"),
            (2, "lock", "/inner/lock", 0, 0, "", "done"),
            (3, "create", "/inner/draft", 0, 0, "", "done"),
            (4, "write", "/inner/draft", 8, 5, "", "done"),
            (5, "zero_fill", "/inner/draft", 13, 3, "", "done"),
            (6, "sync", "/inner/draft", 0, 0, "", "done"),
            (7, "rename", "/inner/draft", 0, 0, "/inner/a", "done"),
            (8, "sync_directory", "/inner", 0, 0, "", "done"),
            (9, "remove", "/inner/a", 0, 0, "", "EIO"),
        ]

    def test_the_same_workload_leaves_the_same_trace_and_the_same_disk(self) -> None:
        one, other = self.traced(), self.traced()

        assert one.trace == other.trace
        assert one.image() == other.image()


def test_faults_are_values() -> None:
    fault: Fault = FailedSync(When(verb=Verb.SYNC, nth=2), seed=3)

    assert fault == FailedSync(When(verb=Verb.SYNC, nth=2), seed=3)
