"""The file of the reserve: what is on the disk after each call, after errors and after power cuts."""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import Lasting, LoseAll, SimulatedDisk
from recovery.crashlab.model.disk_errors import FailedSync, Refused, When
from recovery.crashlab.model.operations import Verb
from storage.capacity.reserve import FILL_STEP, Reserve
from storage.disk.posix import PosixDirectory

if TYPE_CHECKING:
    from pathlib import Path

    from storage.disk.files import Directory

SIZE = 2 * FILL_STEP + 4096


def reserve_in(directory: Directory) -> Reserve:
    return Reserve(directory, "reserve", nullcontext())


def filled(directory: Directory, size: int = SIZE) -> Reserve:
    reserve = reserve_in(directory)
    while not reserve.fill(size):
        pass
    reserve.publish()
    return reserve


def test_a_reserve_is_filled_in_steps_and_gets_its_name_at_the_end() -> None:
    root = SimulatedDisk().root()
    reserve = reserve_in(root)
    assert [reserve.fill(SIZE) for _ in range(3)] == [False, False, True]
    assert (reserve.size, root.names()) == (0, ["reserve.draft"])
    reserve.publish()
    assert (reserve.size, root.names()) == (SIZE, ["reserve"])


def test_a_reserve_takes_its_space_on_a_real_disk(tmp_path: Path) -> None:
    filled(PosixDirectory(tmp_path))
    status = (tmp_path / "reserve").stat()
    assert (status.st_size, status.st_blocks * 512 >= SIZE) == (SIZE, True)
    assert (tmp_path / "reserve").read_bytes() == bytes(SIZE)


def test_a_published_reserve_survives_a_power_cut_and_is_found_again() -> None:
    disk = SimulatedDisk()
    filled(disk.root())
    disk.power_cut(LoseAll())
    assert reserve_in(disk.root()).size == SIZE


def test_a_reserve_that_was_given_up_frees_its_space_durably() -> None:
    disk = SimulatedDisk(capacity=SIZE)
    reserve = filled(disk.root())
    assert disk.root().space().free < FILL_STEP
    assert (reserve.give_up(), reserve.size, disk.root().space().free) == (True, 0, SIZE)
    disk.power_cut(LoseAll())
    assert disk.root().names() == []


def test_a_reserve_is_given_up_once() -> None:
    reserve = filled(SimulatedDisk().root())
    assert [reserve.give_up(), reserve.give_up()] == [True, False]


def test_a_draft_is_given_up_too_and_is_never_published() -> None:
    root = SimulatedDisk().root()
    reserve = reserve_in(root)
    reserve.fill(SIZE)
    assert reserve.is_filling
    assert reserve.give_up()
    reserve.publish()
    assert (reserve.is_there, root.names()) == (False, [])


@pytest.mark.parametrize(
    "fault",
    [
        Refused(When(verb=Verb.ZERO_FILL), errno.ENOSPC),
        FailedSync(When(verb=Verb.SYNC)),
        FailedSync(When(verb=Verb.SYNC), error=errno.EDQUOT),
    ],
    ids=["no space", "failed sync", "quota"],
)
def test_after_an_error_the_draft_is_removed_and_the_next_call_begins_a_new_file(
    fault: Refused | FailedSync,
) -> None:
    disk = SimulatedDisk()
    reserve = reserve_in(disk.root())
    disk.plant(fault)
    with pytest.raises(OSError, match=r".") as caught:
        reserve.fill(SIZE)
    assert (caught.value.errno, disk.root().names()) == (fault.error, [])
    while not reserve.fill(SIZE):
        pass
    reserve.publish()
    created = [one for one in disk.trace if one.verb is Verb.CREATE]
    assert (len(created), reserve.size) == (2, SIZE)


def test_an_error_of_the_removal_is_raised_because_names_are_unknown() -> None:
    disk = SimulatedDisk()
    reserve = filled(disk.root())
    disk.plant(FailedSync(When(verb=Verb.SYNC_DIRECTORY, lasting=Lasting.ONCE)))
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        reserve.give_up()


def test_a_reserve_that_another_program_removed_is_given_up_all_the_same() -> None:
    root = SimulatedDisk().root()
    reserve = filled(root)
    root.remove("reserve")
    assert reserve.give_up()


def test_at_the_end_of_a_run_the_draft_is_removed_and_closing_twice_does_nothing() -> None:
    root = SimulatedDisk().root()
    reserve = reserve_in(root)
    reserve.fill(SIZE)
    reserve.discard_draft()
    assert root.names() == []
    reserve.fill(SIZE)
    reserve.close()
    reserve.close()
    assert (root.names(), reserve.is_filling) == (["reserve.draft"], False)


def test_a_larger_reserve_replaces_a_smaller_one() -> None:
    root = SimulatedDisk().root()
    filled(root, 4096)
    assert filled(root, 8192).size == 8192
    assert reserve_in(root).size == 8192
