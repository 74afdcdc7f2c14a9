"""The simulated disk promises exactly the durability of `storage.disk.files`, and nothing more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import (
    DeadHandle,
    Exactly,
    KeepAll,
    LoseAll,
    RandomFate,
    SimulatedDisk,
    Stopped,
    Tearing,
)
from recovery.crashlab.model.fates import keep
from recovery.crashlab.model.pending import (
    Newest,
    PendingName,
    PendingSector,
    PendingSize,
    SectorHead,
    SectorRuined,
    SectorTail,
    Version,
)
from recovery.crashlab.model.platter import ROOT, Platter
from storage.errors import StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable

    from recovery.crashlab import Fate
    from recovery.crashlab.model.pending import Survivors
    from storage.disk.files import Directory, WriteFile


def stored(disk: SimulatedDisk, name: str, content: bytes) -> WriteFile:
    """Return an open file with durable content and a durable name."""
    file = disk.root().create(name)
    file.write(0, [content])
    file.sync()
    disk.root().sync()
    return file


def after(disk: SimulatedDisk, fate: Fate) -> SimulatedDisk:
    cut = disk.copy()
    cut.power_cut(fate)
    return cut


def content(directory: Directory, name: str) -> bytes:
    with directory.open(name) as file:
        return file.read(0, file.size())


def outcomes(disk: SimulatedDisk, name: str) -> set[bytes]:
    """Return every content of a file that the fates of this moment leave."""
    return {content(after(disk, fate).root(), name) for fate in disk.fates()}


class TestDurability:
    def test_synced_data_with_a_synced_name_survives_every_fate(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"kept")
        disk.root().create("b").write(0, [b"other"])

        assert outcomes(disk, "a") == {b"kept"}

    def test_an_unsynced_write_is_seen_and_lost(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"old").write(0, [b"NEW", b" and longer"])

        assert content(disk.root(), "a") == b"NEW and longer"
        assert content(after(disk, LoseAll()).root(), "a") == b"old"
        assert content(after(disk, KeepAll()).root(), "a") == b"NEW and longer"

    def test_zeros_are_pending_like_any_write(self) -> None:
        disk = SimulatedDisk()
        file = stored(disk, "a", b"old")
        file.zero_fill(0, 1000)

        assert content(disk.root(), "a") == bytes(1000)
        assert content(after(disk, LoseAll()).root(), "a") == b"old"
        file.sync()
        assert content(after(disk, LoseAll()).root(), "a") == bytes(1000)

    def test_the_sync_of_a_file_says_nothing_of_its_name(self) -> None:
        disk = SimulatedDisk()
        file = disk.root().create("a")
        file.write(0, [b"content"])
        file.sync()

        assert after(disk, LoseAll()).root().names() == []

    def test_the_sync_of_a_directory_says_nothing_of_content(self) -> None:
        disk = SimulatedDisk()
        disk.root().create("a").write(0, [b"content"])
        disk.root().sync()

        assert content(after(disk, LoseAll()).root(), "a") == b""

    def test_the_sync_of_one_file_says_nothing_of_another(self) -> None:
        disk = SimulatedDisk()
        one, other = stored(disk, "one", b"1"), stored(disk, "other", b"2")
        one.write(0, [b"A"])
        other.write(0, [b"B"])
        other.sync()

        assert content(after(disk, LoseAll()).root(), "one") == b"1"
        assert content(after(disk, LoseAll()).root(), "other") == b"B"

    def test_a_lost_rename_brings_both_old_names_back(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "mark", b"old")
        stored(disk, "draft", b"new")
        disk.root().rename("draft", "mark")

        lost = after(disk, LoseAll()).root()
        assert (content(lost, "mark"), content(lost, "draft")) == (b"old", b"new")
        kept = after(disk, KeepAll()).root()
        assert (content(kept, "mark"), kept.names()) == (b"new", ["mark"])

    def test_a_rename_is_never_half_done(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "mark", b"old")
        disk.root().create("draft").write(0, [b"new"])
        disk.root().rename("draft", "mark")

        names = {tuple(after(disk, fate).root().names()) for fate in disk.fates()}
        assert names == {("mark",), ("draft", "mark")}

    def test_a_synced_rename_stays(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "draft", b"new")
        disk.root().rename("draft", "mark")
        disk.root().sync()

        assert after(disk, LoseAll()).root().names() == ["mark"]

    def test_a_file_that_was_renamed_twice_never_has_two_names(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"content")
        disk.root().rename("a", "b")
        disk.root().rename("b", "c")

        names = {tuple(after(disk, fate).root().names()) for fate in disk.fates()}
        assert names == {("a",), ("b",), ("c",)}

    def test_a_removed_file_may_come_back_until_the_directory_is_synced(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"content")
        disk.root().remove("a")

        assert disk.root().names() == []
        assert content(after(disk, LoseAll()).root(), "a") == b"content"
        disk.root().sync()
        assert after(disk, LoseAll()).root().names() == []

    def test_a_made_directory_needs_the_sync_of_its_parent(self) -> None:
        disk = SimulatedDisk()
        inner = disk.root().directory("inner")
        inner.make()
        inner.create("a")
        inner.sync()

        assert after(disk, LoseAll()).root().names() == []
        disk.root().sync()
        assert after(disk, LoseAll()).root().directory("inner").names() == ["a"]

    def test_a_removed_file_can_still_be_read_through_its_handle(self) -> None:
        disk = SimulatedDisk()
        file = stored(disk, "a", b"content")
        reader = disk.root().open("a")
        disk.root().remove("a")
        file.write(7, [b" grows"])
        file.sync()

        assert reader.read(0, 100) == b"content grows"


class TestFates:
    def test_any_subset_of_unsynced_names_may_survive(self) -> None:
        disk = SimulatedDisk()
        for name in "abc":
            disk.root().create(name)

        found = {"".join(after(disk, fate).root().names()) for fate in disk.fates()}
        assert found == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}

    def test_each_directory_has_a_fate_of_its_own(self) -> None:
        disk = SimulatedDisk()
        directories = [disk.root().directory(name) for name in ("one", "other")]
        for directory in directories:
            directory.make()
        disk.root().sync()
        for directory in directories:
            for name in "ab":
                directory.create(name)

        found = set()
        for fate in disk.fates(exhaustive_up_to=0):
            root = after(disk, fate).root()
            found.add((len(root.directory("one").names()), len(root.directory("other").names())))
        assert {(0, 0), (0, 2), (2, 0), (2, 2), (1, 0), (0, 1), (1, 2), (2, 1)} <= found

    def test_one_file_may_keep_everything_while_another_loses_it(self) -> None:
        disk = SimulatedDisk()
        for name in "abc":
            stored(disk, name, b"o" * 1024).write(0, [b"n" * 1024])

        found = set()
        for fate in disk.fates(exhaustive_up_to=0):
            root = after(disk, fate).root()
            found.add(b"".join(content(root, name)[::512] for name in "abc"))
        assert {b"nnoooo", b"oonnoo", b"oooonn", b"oonnnn", b"nnoonn", b"nnnnoo"} <= found

    def test_new_files_may_keep_names_and_sizes_and_hold_zeros(self) -> None:
        disk = SimulatedDisk()
        for name in "ab":
            disk.root().create(name).write(0, [b"x" * 700])

        images = [after(disk, fate).root() for fate in disk.fates(exhaustive_up_to=0)]
        whole = [image for image in images if len(image.names()) == 2]
        assert (bytes(700), bytes(700)) in {(content(image, "a"), content(image, "b")) for image in whole}

    def test_prefixes_suffixes_and_holes_are_among_the_corners(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"").write(0, [b"x" * 512 * 4])
        shapes = {"x", "xx", "xxx", "xxxx", "0xxx", "00xx", "000x", "0x", "00x", "x0xx", "xx0x", "0000"}

        found = {content(after(disk, fate).root(), "a")[::512] for fate in disk.fates(exhaustive_up_to=0)}
        assert {shape.replace("0", "\0").encode() for shape in shapes} <= found

    def test_an_older_version_of_a_sector_may_have_been_written_back(self) -> None:
        disk = SimulatedDisk()
        file = stored(disk, "a", b"0")
        for version in (b"1", b"2", b"3"):
            file.write(0, [version])

        assert outcomes(disk, "a") == {b"0", b"1", b"2", b"3"}
        assert {content(after(disk, RandomFate(n)).root(), "a") for n in range(60)} == {
            b"0",
            b"1",
            b"2",
            b"3",
        }

    @pytest.mark.parametrize("draw", [range(0), range(200)], ids=["corners", "random"])
    def test_a_large_sector_tears_at_512(self, draw: range) -> None:
        disk = SimulatedDisk(sector_size=4096)
        stored(disk, "a", b"o" * 4096).write(0, [b"n" * 4096])

        fates: list[Fate] = [*map(RandomFate, draw)] or [*disk.fates()]
        found = {content(after(disk, fate).root(), "a") for fate in fates}
        assert {b"n" * 512 + b"o" * 3584, b"o" * 3584 + b"n" * 512} <= found
        assert all(len(set(image[at : at + 512])) == 1 for image in found for at in range(0, 4096, 512))

    def test_a_sector_may_be_torn_while_later_ones_are_whole_or_gone(self) -> None:
        disk = SimulatedDisk(sector_size=1024)
        stored(disk, "a", b"o" * 3072).write(0, [b"n" * 3072])

        found = {content(after(disk, fate).root(), "a")[::512] for fate in disk.fates(exhaustive_up_to=0)}
        assert {b"nnnonn", b"nnonnn", b"nnnooo", b"nnonoo"} <= found

    def test_512_bytes_never_tear(self) -> None:
        disk = SimulatedDisk(sector_size=512)
        stored(disk, "a", b"o" * 512).write(0, [b"n" * 512])

        fates: list[Fate] = [*disk.fates(), *map(RandomFate, range(100))]
        found = {content(after(disk, fate).root(), "a") for fate in fates}
        assert found == {b"o" * 512, b"n" * 512}

    @pytest.mark.parametrize("tearing", [Tearing.WHOLE, Tearing.HALVES], ids=lambda tearing: tearing.name)
    def test_durable_neighbours_in_a_sector_are_safe(self, tearing: Tearing) -> None:
        disk = SimulatedDisk(sector_size=4096)
        stored(disk, "a", b"durable").write(7, [b"new" * 500])

        found = {content(after(disk, RandomFate(seed, tearing)).root(), "a")[:7] for seed in range(200)}
        assert found == {b"durable"}

    def test_a_ruined_sector_destroys_durable_bytes_beside_the_new_ones(self) -> None:
        disk = SimulatedDisk(sector_size=4096)
        stored(disk, "a", b"durable").write(7, [b"new"])

        found = {
            content(after(disk, RandomFate(seed, Tearing.RUINED)).root(), "a")[:7] for seed in range(200)
        }
        assert len(found) > 1

    def test_every_subset_is_tried_when_the_units_are_few(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"\0" * 512 * 6).write(0, [b"x" * 512 * 6])

        assert len(disk.pending().units) == 6
        assert len({after(disk, fate).image() for fate in disk.fates()}) == 2**6
        assert len({after(disk, fate).image() for fate in disk.fates(exhaustive_up_to=5)}) < 2**6

    def test_a_fate_says_which_units_it_keeps(self) -> None:
        disk = SimulatedDisk()
        disk.root().create("a").write(0, [b"x" * 600])

        assert disk.pending().units == (
            PendingName(0, 0), PendingSize(1), PendingSector(1, 0), PendingSector(1, 1),
        )  # fmt: skip
        assert [unit.what for unit in disk.pending().units][:2] == ["/: create a", "size of /a"]

    def test_a_survivor_may_be_whole_older_torn_or_ruined(self) -> None:
        disk = SimulatedDisk(sector_size=1024)
        file = stored(disk, "a", b"o" * 1024)
        file.write(0, [b"m" * 1024])
        file.write(0, [b"n" * 1024])
        (unit,) = disk.pending().sectors
        survivals = (Newest(), Version(0), SectorHead(512), SectorTail(512), SectorRuined(1))

        found = [
            content(after(disk, Exactly("", frozenset({(unit, survival)}))).root(), "a")
            for survival in survivals
        ]
        assert found[:4] == [
            b"n" * 1024, b"m" * 1024, b"n" * 512 + b"o" * 512, b"o" * 512 + b"n" * 512,
        ]  # fmt: skip
        assert len(set(found[4])) > 100

    def test_a_surviving_sector_of_a_lost_growth_extends_the_file_as_far_as_needed(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"").write(0, [b"x" * 700])
        pending = disk.pending()

        assert content(after(disk, keep(pending, "", pending.sectors[:1])).root(), "a") == b"x" * 512
        assert (
            content(after(disk, keep(pending, "", pending.sectors[1:])).root(), "a")
            == bytes(512) + b"x" * 188
        )

    def test_a_file_may_be_as_long_as_it_once_was_between_two_syncs(self) -> None:
        disk, shorter = SimulatedDisk(), SimulatedDisk()
        file = stored(disk, "a", b"")
        file.write(0, [b"x" * 100])
        file.write(100, [b"y" * 1000])
        stored(shorter, "a", b"x" * 100)

        pending = disk.pending()
        kept: Survivors = {pending.sizes[0]: Version(0)}
        kept |= dict.fromkeys(pending.sectors, Newest())
        assert after(disk, Exactly("", frozenset(kept.items()))).image() == shorter.image()
        images = {after(disk, RandomFate(seed)).image() for seed in range(100)}
        assert shorter.image() in images

    def test_the_same_seed_leaves_the_same_disk(self) -> None:
        images = [[after(busy_disk(), RandomFate(seed)).image() for seed in range(40)] for _ in range(2)]

        assert images[0] == images[1]
        assert len(set(images[0])) > 20

    def test_images_are_alike_in_every_process(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"content")

        assert disk.image() == "5c5ae2d6cb355538329254661d2156a2"


def busy_disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    for name in ("a", "b", "c"):
        disk.root().create(name).write(0, [name.encode() * 1500])
    disk.root().rename("c", "d")
    return disk


class TestBoots:
    def test_a_killed_process_leaves_bytes_that_are_readable_and_not_durable(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"old").write(0, [b"new"])
        disk.root().create("b")
        disk.kill()

        assert content(disk.root(), "a") == b"new"
        assert disk.root().names() == ["a", "b"]
        disk.power_cut(LoseAll())
        assert content(disk.root(), "a") == b"old"
        assert disk.root().names() == ["a"]

    def test_names_of_a_killed_process_become_durable_with_the_next_sync(self) -> None:
        disk = SimulatedDisk()
        disk.root().create("b")
        disk.kill()
        disk.root().sync()

        assert after(disk, LoseAll()).root().names() == ["b"]

    USES: tuple[Callable[[Directory, WriteFile], object], ...] = (
        lambda directory, _: directory.names(),
        lambda directory, _: directory.open("a"),
        lambda directory, _: directory.create("new"),
        lambda directory, _: directory.rename("a", "b"),
        lambda directory, _: directory.remove("a"),
        lambda directory, _: directory.sync(),
        lambda directory, _: directory.lock("lock"),
        lambda directory, _: directory.directory("inner"),
        lambda _, file: file.write(0, [b"x"]),
        lambda _, file: file.zero_fill(0, 1),
        lambda _, file: file.sync(),
    )

    @pytest.mark.parametrize("use", USES, ids=range(len(USES)))
    @pytest.mark.parametrize(
        "end", [SimulatedDisk.kill, lambda disk: disk.power_cut(KeepAll())], ids=["kill", "cut"]
    )
    def test_handles_die_with_their_process(
        self, end: Callable[[SimulatedDisk], None], use: Callable[[Directory, WriteFile], object]
    ) -> None:
        disk = SimulatedDisk()
        directory, file = disk.root(), stored(disk, "a", b"content")
        image = disk.image()
        end(disk)

        with pytest.raises(DeadHandle):
            use(directory, file)
        file.close()
        assert disk.image() == image

    def test_a_lock_is_held_by_one_and_freed_by_close(self) -> None:
        disk = SimulatedDisk()
        lock = disk.root().lock("lock")

        with pytest.raises(StoreLocked):
            disk.root().lock("lock")
        lock.close()
        disk.root().lock("lock")

    @pytest.mark.parametrize(
        "end", [SimulatedDisk.kill, lambda disk: disk.power_cut(KeepAll())], ids=["kill", "cut"]
    )
    def test_a_lock_is_gone_with_its_process(self, end: Callable[[SimulatedDisk], None]) -> None:
        disk = SimulatedDisk()
        dead = disk.root().lock("lock")
        end(disk)
        disk.root().lock("lock")
        dead.close()

        with pytest.raises(StoreLocked):
            disk.root().lock("lock")

    def test_a_lock_leaves_its_file_which_is_a_name_like_any_other(self) -> None:
        disk = SimulatedDisk()
        disk.root().lock("lock").close()

        assert disk.root().names() == ["lock"]
        assert after(disk, LoseAll()).root().names() == []


class TestCopies:
    def test_a_copy_and_its_original_change_apart(self) -> None:
        disk = SimulatedDisk()
        file = stored(disk, "a", b"old")
        twin = disk.copy()
        file.write(0, [b"new"])
        disk.root().create("b")

        assert content(twin.root(), "a") == b"old"
        assert twin.root().names() == ["a"]
        twin.root().create("c")
        assert disk.root().names() == ["a", "b"]

    def test_a_copy_of_a_copy_shares_nothing_that_changes(self) -> None:
        disk = SimulatedDisk()
        file = stored(disk, "a", b"0")
        copies = []
        for version in (b"1", b"2", b"3"):
            copies.append(disk.copy().copy())
            file.write(0, [version])

        assert [content(copy.root(), "a") for copy in copies] == [b"0", b"1", b"2"]

    def test_the_disk_after_a_cut_is_independent_of_the_disk_before_it(self) -> None:
        platter = Platter(512)
        platter.add_file(ROOT, "a")
        platter.directory_to_change(ROOT).sync()
        cut = platter.after_cut({})
        platter.file_to_change(1).write(0, b"later")
        platter.add_file(ROOT, "b")

        assert (cut.files[1].size, sorted(cut.directories[ROOT].seen)) == (0, ["a"])

    def test_a_copy_keeps_what_is_pending_and_frees_what_is_locked(self) -> None:
        disk = SimulatedDisk()
        stored(disk, "a", b"old").write(0, [b"new"])
        disk.root().lock("lock")
        twin = disk.copy()

        assert twin.pending() == disk.pending()
        assert twin.trace == disk.trace
        twin.root().lock("lock")

    def test_a_cut_leaves_the_original_alone(self) -> None:
        disk = busy_disk()
        before = disk.image(), disk.pending()
        for fate in disk.fates():
            image = after(disk, fate)
            image.root().create("later").write(0, [b"x"])
            image.root().sync()

        assert (disk.image(), disk.pending()) == before

    def test_an_image_tells_names_sizes_bytes_and_directories_apart(self) -> None:
        images = set()
        for name, written in (("a", b""), ("a", b"\0"), ("a", b"x"), ("b", b"x"), ("ab", b"x")):
            disk = SimulatedDisk()
            disk.root().create(name).write(0, [written])
            images.add(disk.image())
        nested = SimulatedDisk()
        nested.root().directory("a").make()
        images.add(nested.image())

        assert len(images) == 6


class TestStops:
    def test_a_stop_leaves_the_operation_and_all_later_ones_undone(self) -> None:
        disk = SimulatedDisk()
        file = stored(disk, "a", b"old")
        disk.stop_before(len(disk.trace) + 1)

        with pytest.raises(Stopped):
            file.write(0, [b"new"])
        with pytest.raises(Stopped):
            disk.root().remove("a")
        with pytest.raises(Stopped):
            disk.root().names()
        file.close()
        disk.kill()
        assert content(disk.root(), "a") == b"old"

    def test_a_stop_within_a_write_leaves_half_of_it(self) -> None:
        disk = SimulatedDisk()
        file = stored(disk, "a", b"")
        disk.stop_within(len(disk.trace) + 1)

        with pytest.raises(Stopped):
            file.write(0, [b"123", b"456"])
        disk.kill()
        assert content(disk.root(), "a") == b"123"
        disk.root().create("b")
        assert [operation.outcome for operation in disk.trace[-2:]] == ["stopped", "done"]

    def test_no_handler_of_errors_catches_a_stop(self) -> None:
        assert not issubclass(Stopped, Exception)

    def test_a_watcher_sees_the_disk_before_each_operation(self) -> None:
        disk, seen = SimulatedDisk(), []
        disk.watch(
            lambda operation: seen.append((operation.number, str(operation.verb), disk.root().names()))
        )
        stored(disk, "a", b"x")

        assert seen == [
            (1, "create", []),
            (2, "write", ["a"]),
            (3, "sync", ["a"]),
            (4, "sync_directory", ["a"]),
        ]


@pytest.mark.parametrize(
    ("growth", "expected"),
    [(None, b"new" + bytes(509) + (b"old" * 400)[512:]), (Newest(), b"new"), (Version(0), b"")],
)
def test_the_zeros_of_a_lost_truncation_are_lost_too(
    growth: Newest | Version | None, expected: bytes
) -> None:
    platter = Platter(512)
    number = platter.add_file(ROOT, "a")
    platter.file_to_change(number).write(0, b"old" * 400)
    platter.file_to_change(number).sync()
    platter.sync_names(ROOT)
    platter.file_to_change(number).truncate(0)
    platter.file_to_change(number).write(0, b"new")
    pending = platter.pending()
    survivors: Survivors = dict.fromkeys(pending.sectors, Newest())
    if growth is not None:
        survivors[pending.sizes[0]] = growth
    left = platter.after_cut(survivors).files[number]
    assert left.read(0, left.size) == expected
