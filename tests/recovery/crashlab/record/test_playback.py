"""A played tape gives the recorded directory, and its unsynced changes wait as on the simulated disk."""

from __future__ import annotations

import errno
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import pytest
import random_files
import sampling
from disk_tape import tape_of
from lab_runs import Recorder

from recovery.crashlab import FailedSync, Refused, ShortWrite, SimulatedDisk, When
from recovery.crashlab.judge.outcome import Answered
from recovery.crashlab.model import real_tree
from recovery.crashlab.model.edge_case_fates import exhaustive_fates
from recovery.crashlab.model.fates import KeepAll, LoseAll, RandomFate, Tearing
from recovery.crashlab.model.operations import SYNCING
from recovery.crashlab.model.profile import PROFILES
from recovery.crashlab.model.real_tree import IgnoredPaths
from recovery.crashlab.record import preload
from recovery.crashlab.record.playback import Playback
from recovery.crashlab.record.tape import Call, Event, Flag, decode, encode_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from recovery.crashlab.model.fates import Fate
    from recovery.crashlab.model.operations import Operation
    from recovery.crashlab.model.platter import Platter

STRICT = PROFILES["posix-strict"]
NOTHING = IgnoredPaths()
ALL_LOST = LoseAll()
DURABLE, DIRECTORY = int(Flag.DURABLE), int(Flag.DIRECTORY)

needs_recorder = pytest.mark.skipif(bool(preload.why_not()), reason=preload.why_not() or "nothing is missing")


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    with Recorder() as recorder:
        yield recorder


def played(*events: Event, ignored: IgnoredPaths = NOTHING, profile: str = "posix-strict") -> Playback:
    playback = Playback(PROFILES[profile], ignored)
    playback.play_all(events)
    return playback


def cut(platter: Platter, fate: Fate) -> Platter:
    return platter.after_cut(fate.survivors(platter.pending()))


def left(playback: Playback, fate: Fate = ALL_LOST) -> dict[str, bytes]:
    return real_tree.visible_tree(cut(playback.platter, fate))


def seen(playback: Playback) -> dict[str, bytes]:
    return real_tree.visible_tree(playback.platter)


# ── short forms of events ───────────────────────────────────────────────────────────────────────────────────


def create(path: str, inode: int) -> Event:
    return Event(Call.CREATE, path=path, inode=inode)


def mkdir(path: str, inode: int) -> Event:
    return Event(Call.MKDIR, path=path, inode=inode)


def write(inode: int, data: bytes, offset: int = 0, flags: int = 0) -> Event:
    return Event(Call.WRITE, path="?", inode=inode, offset=offset, length=len(data), flags=flags, data=data)


def truncate(inode: int, size: int) -> Event:
    return Event(Call.TRUNCATE, path="?", inode=inode, length=size)


def rename(old: str, new: str) -> Event:
    return Event(Call.RENAME, path=old, target=new)


def link(old: str, new: str) -> Event:
    return Event(Call.LINK, path=old, target=new)


def unlink(path: str) -> Event:
    return Event(Call.UNLINK, path=path)


def sync(inode: int, error: int = 0, number: int = 0) -> Event:
    return Event(Call.SYNC, number, path="?", inode=inode, error=error)


def sync_names(path: str = ".", inode: int = 0, error: int = 0, number: int = 0) -> Event:
    return Event(Call.SYNC, number, path=path, inode=inode, flags=DIRECTORY, error=error)


SYNC_ALL = Event(Call.SYNC_ALL, path=".")


# ── visible changes ─────────────────────────────────────────────────────────────────────────────────────────


@needs_recorder
@pytest.mark.parametrize("sector_size", [512, 4096])
@pytest.mark.parametrize(
    "seed", [*range(2), *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 60))]
)
def test_a_tape_of_any_program_plays_back_to_the_directory_that_it_left(
    recorder: Recorder, tmp_path: Path, seed: int, sector_size: int
) -> None:
    run = recorder.run(partial(random_files.churn, seed=seed), tmp_path)
    assert run.outcome == Answered(None)

    playback = Playback(PROFILES["sector-4k" if sector_size == 4096 else "posix-strict"], NOTHING)
    playback.play_all(run.events)

    assert len(run.events) > 200
    assert playback.uncovered == {}
    assert real_tree.differences(playback.platter, tmp_path, NOTHING) == {}
    real = real_tree.read_tree(tmp_path, NOTHING)
    assert seen(playback) == real
    assert left(playback, KeepAll()) == real
    playback.play_all([SYNC_ALL])
    assert left(playback, LoseAll()) == real


@needs_recorder
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(0, marks=pytest.mark.sampled),
        *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 30)),
    ],
)
def test_every_state_of_any_program_can_be_laid_out(recorder: Recorder, tmp_path: Path, seed: int) -> None:
    root, place = tmp_path / "root", tmp_path / "laid out"
    root.mkdir()
    events = recorder.run(partial(random_files.churn, seed=seed), root).events
    playback, draw = Playback(STRICT, NOTHING), Random(seed)

    stops = 0
    for _, _ in playback.moments(events):
        stops += 1
        if stops % sampling.many(1, 3):
            continue
        after = cut(playback.platter, RandomFate(draw.getrandbits(40), Tearing.WHOLE))
        target = place / str(stops)
        target.mkdir(parents=True)
        real_tree.lay_out(after, target)
        assert real_tree.differences(after, target, NOTHING) == {}
        assert real_tree.read_tree(target, NOTHING) == real_tree.visible_tree(after)
    assert stops > 20


def test_a_tape_is_decoded_to_the_same_events() -> None:
    events = [
        create("naïve \udcff", 1 << 63),
        write(1 << 40, b"\0data", 1 << 50, DURABLE),
        rename("a", "b"),
        Event(Call.MARK, data=b'["invoke",1]\n'),
        Event(Call.SYNC, 7, error=errno.EIO, thread=99),
    ]

    whole = encode_all(events)

    assert list(decode(whole)) == events
    assert list(decode(whole[:-1])) == events[:-1]


def test_a_file_that_is_replaced_or_removed_while_it_is_open_still_takes_writes() -> None:
    playback = played(
        create("a", 1), create("b", 2), rename("b", "a"), write(1, b"gone"), write(2, b"here"), unlink("a"),
        write(2, b"nowhere"), create("a", 3),
    )  # fmt: skip

    assert seen(playback) == {"a": b""}
    assert playback.uncovered == {}


def test_an_inode_that_is_used_again_is_another_file() -> None:
    playback = played(create("a", 1), write(1, b"old"), unlink("a"), create("b", 1), write(1, b"n"))

    assert seen(playback) == {"b": b"n"}


# ── durable changes ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_write_waits_for_its_file_s_sync_and_a_name_for_its_directory_s() -> None:
    made = create("a", 1), write(1, b"data")

    assert left(played(*made)) == {}
    assert left(played(*made, sync(1))) == {}
    assert left(played(*made, sync_names())) == {"a": b""}
    assert left(played(*made, sync(1), sync_names())) == {"a": b"data"}
    assert left(played(*made, SYNC_ALL)) == {"a": b"data"}


def test_a_write_with_o_dsync_is_durable_with_the_size_that_it_needs_and_no_more() -> None:
    playback = played(
        create("a", 1), sync_names(), write(1, b"x" * 600), write(1, b"d" * 512, 1024, DURABLE),
        write(1, b"y", 4000),
    )  # fmt: skip

    assert left(playback) == {"a": bytes(1024) + b"d" * 512}


def test_a_cut_within_a_write_with_o_dsync_may_take_it() -> None:
    events = [create("a", 1), sync_names(), write(1, b"d", 0, DURABLE)]
    playback = Playback(STRICT, NOTHING)

    stops = [(index, left(playback), left(playback, KeepAll())) for index, _ in playback.moments(events)]

    assert stops == [(1, {}, {"a": b""}), (2, {"a": b""}, {"a": b"d"}), (3, {"a": b"d"}, {"a": b"d"})]


def test_a_file_that_was_cut_and_grew_again_has_durable_zeros_after_a_sync() -> None:
    grown = create("a", 1), write(1, b"x" * 1000), sync(1), sync_names(), truncate(1, 100), truncate(1, 1000)

    assert left(played(*grown)) == {"a": b"x" * 1000}
    assert left(played(*grown, sync(1))) == {"a": b"x" * 100 + bytes(900)}


def test_a_failed_sync_is_not_made_good_by_a_later_one() -> None:
    made = create("a", 1), sync_names(), write(1, b"data")
    kept = {left(played(*made, sync(1, errno.EIO, number), sync(1)))["a"] for number in range(20)}

    assert kept == {b"", bytes(4), b"data"}  # a size and bytes may be lost separately
    assert seen(played(*made, sync(1, errno.EIO)))["a"] == b"data"
    # Bytes that are written after it are pending again, and bring their size along.
    again = [played(*made, sync(1, errno.EIO, n), write(1, b"!", 600), sync(1)) for n in range(20)]
    assert {left(one)["a"][512:] for one in again} == {bytes(88) + b"!"}


def test_a_failed_sync_of_everything_makes_nothing_durable_for_certain() -> None:
    made = create("a", 1), write(1, b"data")
    failed = [played(*made, Event(Call.SYNC_ALL, number, path=".", error=errno.EIO)) for number in range(20)]

    assert {} in [left(one) for one in failed]
    assert all(left(one, KeepAll()) in ({}, {"a": b""}, {"a": b"data"}) for one in failed)


def test_a_lying_disk_has_not_done_the_last_two_syncs() -> None:
    made = create("a", 1), sync_names(), write(1, b"1"), sync(1), write(1, b"2", 512), sync(1)

    assert left(played(*made, profile="lying-disk")) == {"a": b""}
    assert left(played(*made, sync(1), profile="lying-disk")) == {"a": b"1" + bytes(511) + b"2"}


def test_with_ordered_names_every_sync_makes_earlier_names_durable() -> None:
    made = create("a", 1), mkdir("d", 2), create("d/b", 3), write(3, b"data"), sync(3)

    assert left(played(*made)) == {}
    assert left(played(*made, profile="ext4-ordered")) == {"a": b"", "d/b": b"data"}


# ── names that move ─────────────────────────────────────────────────────────────────────────────────────────

DIRECTORIES = (mkdir("a", 1), mkdir("b", 2), mkdir("c", 3), sync_names())


def paths(playback: Playback, fate: Fate) -> set[str]:
    return {path for path in left(playback, fate) if not path.endswith("/")}


def test_a_sync_that_makes_a_removal_durable_makes_the_new_name_durable_too() -> None:
    moved = [
        *DIRECTORIES, create("a/x", 4), create("b/y", 5), sync_names("a", 1), sync_names("b", 2),
        rename("b/y", "c/y"), rename("a/x", "b/x"),
    ]  # fmt: skip

    playback = played(*moved, sync_names("a", 1))

    assert paths(playback, LoseAll()) == {"b/x", "c/y"}
    assert paths(playback, KeepAll()) == {"b/x", "c/y"}


@pytest.mark.parametrize("error", [0, errno.EIO])
def test_no_crash_leaves_a_file_that_was_moved_without_any_name(error: int) -> None:
    draw = Random(error)
    for number in range(120):
        playback = _moved_about(draw, error)
        fates: list[Fate] = [LoseAll(), KeepAll(), *(RandomFate(draw.getrandbits(40)) for _ in range(8))]
        for fate in fates:
            contents = set(left(playback, fate).values())
            assert contents >= {b"0", b"1", b"2"}, (number, fate)


def _moved_about(draw: Random, error: int) -> Playback:
    """Three files that move between three directories, to free names, with syncs of names."""
    playback = played(*DIRECTORIES)
    where = []
    for number in range(3):
        where.append(f"{draw.choice('abc')}/{number}")
        made = create(where[-1], 10 + number), write(10 + number, b"%d" % number), sync(10 + number)
        playback.play_all(made)
    playback.play_all([SYNC_ALL])
    for step in range(12):
        if draw.random() < 0.3:
            at = draw.randrange(3)
            failed = error if draw.random() < 0.5 else 0
            playback.play(sync_names("abc"[at], 1 + at, failed, step))
        else:
            number = draw.randrange(3)
            target = f"{draw.choice('abc')}/{number}{draw.choice('xyz')}"
            playback.play(rename(where[number], target))
            where[number] = target
    return playback


def test_a_directory_moved_below_its_own_child_makes_no_cycle() -> None:
    playback = played(
        mkdir("a", 1), mkdir("a/b", 2), sync_names(), sync_names("a", 1), rename("a/b", "c"),
        rename("a", "c/a"),
    )  # fmt: skip
    pending = playback.platter.pending()

    for fate in exhaustive_fates(pending):
        after = cut(playback.platter, fate)
        nodes = [node for _, node in after.seen()]
        assert len(nodes) == len(set(nodes))


def test_each_name_of_a_file_survives_independently() -> None:
    made = create("a", 1), write(1, b"x"), sync(1), sync_names(), link("a", "b"), unlink("a")
    playback = played(*made)
    fates: list[Fate] = [LoseAll(), KeepAll(), *map(RandomFate, range(60))]

    assert seen(playback) == {"b": b"x"}
    assert {tuple(left(playback, fate)) for fate in fates} == {("a",), ("b",), ("a", "b"), ()}


# ── ignored paths, and paths that are not covered ───────────────────────────────────────────────────────────


def test_an_ignored_file_is_not_played() -> None:
    ignored = IgnoredPaths(("*.lock", "shm"))
    made = create("my.lock", 1), create("d", 2), rename("d", "your.lock"), create("e", 3), link("e", "shm")

    assert seen(played(*made, ignored=ignored)) == {"e": b""}


@pytest.mark.parametrize(
    ("event", "path"),
    [
        (write(99, b"x"), "?"),
        (Event(Call.MAP, path="mapped"), "mapped"),
        (Event(Call.SYMLINK, path="symbolic", target="a"), "symbolic"),
        (Event(Call.EXCHANGE, path="a", target="b"), "a"),
        (rename("?", "came"), "?"),
        (rename("absent", "b"), "absent"),
        (rename("my.lock", "b"), "b"),
        (Event(Call.ALLOCATE, path="a", inode=1, flags=0x08 << 8, length=4096), "a"),
    ],
)
def test_files_that_the_model_cannot_follow_are_reported(event: Event, path: str) -> None:
    playback = played(create("a", 1), event, ignored=IgnoredPaths(("*.lock",)))

    assert path in playback.uncovered


def test_a_call_that_failed_changed_nothing() -> None:
    failed = [
        Event(Call.CREATE, path="b", error=errno.ENOSPC),
        Event(Call.WRITE, path="a", inode=1, length=4, error=errno.EIO),
        Event(Call.WRITE, path="a", inode=1, length=4, error=errno.EIO, flags=DURABLE),
        Event(Call.RENAME, path="a", target="c", error=errno.EIO),
        Event(Call.MAP, path="a", inode=1, error=errno.EIO),
    ]
    playback = played(create("a", 1), *failed)

    assert (seen(playback), playback.uncovered) == ({"a": b""}, {})


@pytest.mark.parametrize(
    ("change", "path"),
    [("made", "new"), ("directory", "e"), ("removed", "a"), ("bytes", "a"), ("gone", "d")],
)
def test_unrecorded_changes_are_found_in_the_directory(tmp_path: Path, change: str, path: str) -> None:
    playback = played(create("a", 1), write(1, b"x"), mkdir("d", 2))
    real_tree.lay_out(playback.platter, tmp_path)
    assert real_tree.differences(playback.platter, tmp_path, NOTHING) == {}

    changes: dict[str, Callable[[], object]] = {
        "made": (tmp_path / "new").touch,
        "directory": (tmp_path / "e").mkdir,
        "removed": (tmp_path / "a").unlink,
        "bytes": lambda: (tmp_path / "a").write_bytes(b"y"),
        "gone": (tmp_path / "d").rmdir,
    }
    changes[change]()

    assert [*real_tree.differences(playback.platter, tmp_path, NOTHING)] == [path]
    assert real_tree.differences(playback.platter, tmp_path, IgnoredPaths((path,))) == {}


def test_a_directory_with_only_ignored_files_is_laid_out_again(tmp_path: Path) -> None:
    (tmp_path / "a" / "records").mkdir(parents=True)
    (tmp_path / "a" / "records" / "lock").touch()

    assert real_tree.read_tree(tmp_path, IgnoredPaths(("lock",))) == {"a/records/": b""}


# ── the tape of a simulated disk ────────────────────────────────────────────────────────────────────────────


def recorded(disk: SimulatedDisk) -> list[Event]:
    return list(decode(encode_all(tape_of(disk.trace))))


def states_of_disk(disk: SimulatedDisk, seed: int) -> dict[int, list[str]]:
    """Return what cuts before each sync of the workload, and at its end, leave of the disk itself."""
    found: dict[int, list[str]] = {}
    copies: dict[int, SimulatedDisk] = {}

    def keep(operation: Operation) -> None:
        if operation.verb in SYNCING:
            copies[operation.number] = disk.copy()

    disk.watch(keep)
    random_files.churn_simulated(disk.root(), seed)
    copies[0] = disk
    for number, copy in copies.items():
        found[number] = []
        for fate in fates(number):
            after = copy.copy()
            after.power_cut(fate)
            found[number].append(after.image())
    return found


def states_of_tape(events: Sequence[Event]) -> dict[int, list[str]]:
    playback, found = Playback(STRICT, NOTHING), {}
    for _, event in playback.moments(events):
        number = event.number if event else 0
        found[number] = [cut(playback.platter, fate).image() for fate in fates(number)]
    assert playback.uncovered == {}
    return found


def fates(number: int) -> Iterable[Fate]:
    return (LoseAll(), KeepAll(), *(RandomFate(5 * number + one, Tearing.WHOLE) for one in range(4)))


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 100))]
)
def test_the_tape_of_a_simulated_disk_has_the_same_states_as_the_disk(seed: int) -> None:
    disk = SimulatedDisk()

    states = states_of_disk(disk, seed)

    assert len(states) > 20
    assert states_of_tape(recorded(disk)) == states


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 100))]
)
def test_the_tape_of_a_failing_disk_has_the_same_states_as_the_disk(seed: int) -> None:
    disk = SimulatedDisk(capacity=60_000)
    draw = Random(seed)
    for number in draw.sample(range(10, 120), 25):
        at = When(number=number)
        # A failing sync chooses what it writes by its number, on the tape as here.
        disk.plant(draw.choice((FailedSync(at, seed=number), ShortWrite(at), Refused(at))))

    states = states_of_disk(disk, seed)

    refused = {one.number for one in disk.trace if one.outcome != "done" and one.verb in SYNCING}
    told = states_of_tape(recorded(disk))
    assert told == {number: states[number] for number in told}
    assert states.keys() - told.keys() <= refused
    assert len(told) > 15


def test_a_disk_that_stopped_within_a_write_has_half_of_it_on_the_tape() -> None:
    disk = SimulatedDisk()
    disk.stop_within(2)
    with pytest.raises(BaseException, match="stopped"):  # not an Exception
        disk.root().create("a").write(0, [b"12345678"])

    assert [(event.call, event.data) for event in recorded(disk)] == [
        (Call.CREATE, b""),
        (Call.WRITE, b"1234"),
    ]
