"""Mistakes of the caller and limits of the system are refused by errors that say what to do."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from recovery import open_async_store, open_store, open_view
from storage.config import StoreConfig
from storage.disk.posix import PosixDirectory, PosixWriteFile
from storage.entry import format as entry_format
from storage.entry.digest import digester, master_key
from storage.entry.model import DigestType, Entry
from storage.errors import AlreadyOpen, CorruptionError, DiskFull, LacBeyondEnd, StoreLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from storage.store import Store

ROOT = Path(__file__).parent.parent.parent
QUIET = StoreConfig(
    checkpoint_interval_s=None,
    idle_seal_s=None,
    entry_size_max=8 << 10,
    group_size_max=64 << 10,
    journal_size=1 << 20,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store", QUIET) as store:
        yield store


def run(script: str, *arguments: object) -> str:
    """Run the script in a process of its own; return its output, with errors."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, timeout=60)
    return done.stdout + done.stderr


# ── an explicit last add confirmed ───────────────────────────────────────────────────────────────────────


def test_nothing_is_confirmed_after_the_last_entry(store: Store) -> None:
    ledger = store.ledger(1)
    ledger.append_many([b"a", b"b"])
    with pytest.raises(LacBeyondEnd, match="ledger 1 ends at entry 1, so entry 1000000000 cannot") as caught:
        ledger.set_explicit_lac(10**9)
    assert (caught.value.last_add_confirmed, caught.value.last_entry_id) == (10**9, 1)
    assert isinstance(caught.value, ValueError)
    assert (ledger.explicit_lac, ledger.last_add_confirmed) == (-1, 1)
    ledger.set_explicit_lac(1)
    assert ledger.explicit_lac == 1


def test_no_entry_of_an_empty_ledger_can_be_confirmed(store: Store) -> None:
    with pytest.raises(LacBeyondEnd, match="ledger 2 has no entry, so entry 0 cannot be confirmed"):
        store.ledger(2, DigestType.CRC32C).set_explicit_lac(0)
    assert not store.ledger(2).exists


def test_coroutines_confirm_nothing_after_the_last_entry(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_async_store(tmp_path / "store", QUIET) as store:
            await store.ledger(1).append(b"a")
            with pytest.raises(LacBeyondEnd, match="ends at entry 0"):
                await store.ledger(1).set_explicit_lac(1)

    asyncio.run(main())


def test_a_bookie_keeps_a_packet_that_confirms_more_than_it_has(store: Store) -> None:
    store.ledger(1).append(b"a")
    packet = entry_format.encode_lac(1, 40, digester(DigestType.CRC32C))
    store.bookie.set_explicit_lac(1, packet, master_key(b""))
    assert store.bookie.last_add_confirmed(1) == 40


# ── arguments of a wrong type ────────────────────────────────────────────────────────────────────────────

ODD: dict[str, tuple[Callable[[Any], object], str]] = {
    "a name as a ledger id": (lambda store: store.ledger("orders"), "ledger id is an integer, not 'orders'"),
    "None as a ledger id": (lambda store: store.ledger(None), "ledger id is an integer, not None"),
    "a bool as a ledger id": (lambda store: store.ledger(True), "ledger id is an integer, not True"),
    "a float as a ledger id": (lambda store: store.ledger(1.0), r"ledger id is an integer, not 1\.0"),
    "a bool as an entry id": (lambda store: store.ledger(1).read(True), "entry id is an integer, not True"),
    "false as an entry id": (lambda store: store.ledger(1).read(False), "entry id is an integer, not False"),
    "text to follow from": (lambda store: next(store.ledger(1).follow("0")), "integer, not '0'"),
    "a bool as an end": (lambda store: list(store.ledger(1).entries(True)), "integer, not True"),
    "a bool as a last one": (lambda store: list(store.ledger(1).payloads(0, True)), "integer, not True"),
    "a bool to follow from": (lambda store: next(store.ledger(1).follow(True)), "integer, not True"),
    "a bool as a confirmed id": (
        lambda store: store.ledger(1).set_explicit_lac(True),
        "last add confirmed is an integer, not True",
    ),
    "a digest as text": (
        lambda store: store.ledger(9, "MAC", b"s"),
        "a DigestType, for example DigestType.CRC32C, not 'MAC'",
    ),
    "a digest as a number": (lambda store: store.ledger(9, 2), "a DigestType, for example .*, not 2"),
    "a password as text": (
        lambda store: store.ledger(9, password="secret"),
        r"a password is bytes, not str: encode it first, for example password\.encode\(\)",
    ),
    "an empty password as text": (lambda store: store.ledger(9, password=""), "a password is bytes, not str"),
    "no password": (lambda store: store.ledger(9, password=None), "a password is bytes, not NoneType"),
    "text as a payload": (
        lambda store: store.ledger(1).append("text"),
        r"a payload is bytes, not str: encode it first, for example payload\.encode\(\)",
    ),
    "text among payloads": (
        lambda store: store.ledger(1).append_many([b"a", "b"]),
        "a payload is bytes, not",
    ),
    "text to submit": (lambda store: store.ledger(1).submit("text"), "a payload is bytes, not str"),
    "a number as a payload": (lambda store: store.ledger(1).append(7), "a payload is bytes, not int"),
    "an entry with text": (lambda store: store.add(Entry(1, 1, 0, 1, cast("Any", "a"))), "is bytes, not str"),
    "an entry with a bool": (lambda store: store.add(Entry(True, 1, 0, 1, b"a")), "integer, not True"),
    "an entry with a digest as text": (
        lambda store: store.add(Entry(1, 1, 0, 1, b"a"), "CRC32"),
        "a DigestType, for example .*, not 'CRC32'",
    ),
}


@pytest.mark.parametrize(("call", "message"), ODD.values(), ids=ODD.keys())
def test_an_argument_of_a_wrong_type_is_a_type_error(
    store: Store, call: Callable[[Store], object], message: str
) -> None:
    store.ledger(1).append(b"a")
    with pytest.raises(TypeError, match=message):
        call(store)
    assert store.ledgers() == [1]
    assert list(store.ledger(1).payloads()) == [b"a"]


def test_coroutines_get_the_same_type_errors(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_async_store(tmp_path / "store", QUIET) as opened:
            store = cast("Any", opened)
            with pytest.raises(TypeError, match="a DigestType"):
                store.ledger(9, "MAC", b"s")
            with pytest.raises(TypeError, match="a payload is bytes, not str"):
                await store.ledger(1).append("text")
            with pytest.raises(TypeError, match="not 'CRC32'"):
                await store.add(Entry(1, 1, 0, 1, b"a"), "CRC32")
            assert await store.ledger(1).append(b"a") == 0
            with pytest.raises(TypeError, match="entry id is an integer, not False"):
                await store.ledger(1).read(False)

    asyncio.run(main())


# ── one process, one opener ──────────────────────────────────────────────────────────────────────────────


def test_the_error_of_a_second_opener_in_this_process_names_this_process(store: Store) -> None:
    with pytest.raises(AlreadyOpen, match=rf"LOCK is already open in this process, {os.getpid()}: close"):
        open_store(store.path, QUIET)


def test_a_store_that_was_closed_can_be_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        with open_store(tmp_path / "store", QUIET):
            pass


def test_a_holder_of_the_same_process_id_is_not_taken_for_this_process(tmp_path: Path) -> None:
    script = (
        "import os, sys\n"
        "from storage.disk.posix import PosixDirectory\n"
        "with PosixDirectory(sys.argv[1]).lock('LOCK'):\n"
        "    os.pwrite(os.open(sys.argv[1] + '/LOCK', os.O_WRONLY), b'%-20d' % int(sys.argv[2]), 0)\n"
        "    print('locked', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), str(os.getpid())]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        with pytest.raises(StoreLocked, match=f"is in use by process {os.getpid()}$") as caught:
            PosixDirectory(tmp_path).lock("LOCK")
        assert not isinstance(caught.value, AlreadyOpen)
        (tmp_path / "LOCK").write_bytes(b"unreadable")
        with pytest.raises(StoreLocked, match=r"is in use by another process$"):
            PosixDirectory(tmp_path).lock("LOCK")
        other.communicate()


def test_a_view_in_the_writer_s_own_process_is_refused(store: Store) -> None:
    store.ledger(1).append(b"a")
    with pytest.raises(AlreadyOpen, match="is already open in this process"):
        open_view(store.path)
    assert store.ledger(1).append(b"undisturbed") == 1


def test_a_store_is_not_opened_beside_a_view_of_the_same_process(tmp_path: Path) -> None:
    open_store(tmp_path, QUIET).close()
    with open_view(tmp_path) as view:
        with pytest.raises(AlreadyOpen, match="close the store or view that has it open"):
            open_store(tmp_path, QUIET)
        assert view.ledgers() == []
    with open_store(tmp_path, QUIET) as store:
        assert store.ledger(1).append(b"a") == 0


# ── limits of the system ─────────────────────────────────────────────────────────────────────────────────

LIMITED = """
import resource, sys
from recovery import open_store, open_view
from storage.config import StoreConfig
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
for opener in (open_store, open_view):
    try:
        opener(sys.argv[1])
    except Exception as error:
        print(type(error).__name__, error)
with open_store(sys.argv[1], StoreConfig(index_size_max=1 << 30)) as store:
    print(store.ledger(1).append(b"a"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits address space by RLIMIT_AS")
def test_a_map_that_the_system_refuses_names_the_setting(tmp_path: Path) -> None:
    open_store(tmp_path, QUIET).close()
    told = run(LIMITED, tmp_path).splitlines()
    for line in told[:2]:
        assert line.startswith(
            "InvalidConfig index_size_max: the system refuses 68719476736 bytes of address"
        )
        assert "StoreConfig(index_size_max=1 << 30)" in line
        assert "ulimit -v" in line
    assert told[2:] == ["0"]


def test_a_full_disk_at_creation_is_reported_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(PosixWriteFile, "write", full)
        with pytest.raises(DiskFull, match=f"no space left for {tmp_path}/store") as caught:
            open_store(tmp_path / "store", QUIET)
    assert (caught.value.errno, caught.value.path) == (errno.ENOSPC, str(tmp_path / "store"))
    with open_store(tmp_path / "store", QUIET) as store:
        assert store.ledger(1).append(b"a") == 0


def test_without_file_locks_the_error_names_the_systems_that_have_them() -> None:
    told = run("import sys; sys.modules['fcntl'] = None; import recovery; recovery.open_store('x')")
    assert "ImportError: ledgerstore runs on POSIX systems, such as Linux and macOS" in told
    assert not Path("x").exists()


# ── copies ───────────────────────────────────────────────────────────────────────────────────────────────


def test_the_error_of_a_copied_live_store_explains_how_to_copy(tmp_path: Path) -> None:
    with open_store(tmp_path / "store", QUIET) as store:
        store.ledger(1).append(b"a")
        shutil.copytree(tmp_path / "store", tmp_path / "copy")
    # The result of a `cp` that listed the journals before the newest was made and copied the mark afterwards.
    newest = max((tmp_path / "copy/journal/current").glob("*.txn"))
    newest.unlink()
    with pytest.raises(CorruptionError, match=r"MRK-002.*open while it was copied.*close the store before"):
        open_store(tmp_path / "copy", QUIET)
