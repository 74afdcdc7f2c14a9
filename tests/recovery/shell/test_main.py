"""Facts that hold for every command: forms of output, exit codes, interrupts, a fast start."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest
from shell_samples import (
    JOURNAL_ID,
    bookie_journal,
    flipped,
    ledger,
    our_journal,
    records,
    rows,
    run,
    store,
    verdict,
)

from recovery.shell.main import ALIASES, COMMANDS, cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HEAVY = ("numpy", "rich", "lmdb", "msgpack", "crc32c", "asyncio", "pyspark")
# A shell that runs the tests in the background ignores SIGINT, and child processes inherit that.
HEARS_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEARS_INTERRUPTS}; from recovery.shell.main import main; main()"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return store(tmp_path)


def process(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def on_terminal(*arguments: object, columns: int = 160, **environment: str) -> str:
    """Return what the command writes to a terminal."""
    ours, theirs = pty.openpty()
    variables = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    variables |= {"TERM": "xterm", "COLUMNS": str(columns)} | environment
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)], stdout=theirs, stderr=subprocess.DEVNULL, env=variables
    ):
        os.close(theirs)
        with os.fdopen(ours, "rb", closefd=True) as terminal:
            return b"".join(_until_closed(terminal.fileno())).decode().replace("\r\n", "\n")


def _until_closed(descriptor: int) -> list[bytes]:
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # Linux: the other side is gone
            return pieces
        if not piece:
            return pieces
        pieces.append(piece)


def calls(root: Path) -> list[tuple[object, ...]]:
    journal = root / "journal" / "current" / f"{JOURNAL_ID:x}.txn"
    log = root / "ledgers" / "current" / "0.log"
    return [
        ("files", root),
        ("mark", root),
        ("journal", journal, "--all"),
        ("log", log, "--all"),
        ("log", "--metadata", log),
        ("explain", f"{journal}@512"),
    ]


def test_every_output_form_has_the_same_rows(root: Path) -> None:
    for call in calls(root):
        as_json = json.loads(run(*call, "--json").stdout)
        as_lines = [json.loads(line) for line in run(*call, "--ndjson").stdout.splitlines()]
        heading, *lines = run(*call).stdout.splitlines()
        assert as_json == as_lines
        assert len(lines) == len(as_json) > 0
        first = heading.split()[0]
        for line, row in zip(lines, as_json, strict=True):
            assert line.strip().startswith(str(row[first]))


def test_the_rows_of_a_command_have_the_same_keys_in_the_same_order(root: Path) -> None:
    for call in calls(root):
        listed = rows(*call)
        shared = [key for key in listed[0] if all(key in row for row in listed)]
        assert {tuple(key for key in row if key in shared) for row in listed} == {tuple(shared)}
        assert set(run(*call).stdout.split("\n")[0].split()) <= {*shared}


def test_json_of_no_rows_is_an_empty_array(tmp_path: Path) -> None:
    (tmp_path / "1.log").write_bytes(b"")
    assert json.loads(run("log", tmp_path / "1.log", "--json").stdout) == []


def test_verdicts_go_only_to_stderr(root: Path) -> None:
    for call in calls(root):
        result = run(*call, "--json")
        assert result.exit_code == 0
        assert verdict(result)
        assert verdict(result) not in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("journal", "nowhere.txn"),
        ("journal", "abc"),
        ("journal", "not-hex"),
        ("log", "nowhere/0.log"),
        ("mark", "nowhere"),
        ("files", "nowhere"),
        ("explain", "nowhere.log@5"),
    ],
    ids=" ".join,
)
def test_a_missing_file_ends_with_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (3, "")
    [line] = result.stderr.splitlines()
    assert line.startswith("ledgerstore: ")


def test_a_directory_in_place_of_a_file_ends_with_exit_code_3(tmp_path: Path) -> None:
    assert run("journal", tmp_path).exit_code == 3


def test_a_file_without_permission_ends_with_exit_code_3(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr("recovery.shell.commands.log.open_file", refuse)  # root may read everything
    result = run("log", root / "ledgers" / "current" / "0.log")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "Permission denied" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("journal",),
        ("journal", "x", "--entry", "5..2"),
        ("journal", "x", "--ledger", "-1"),
        ("journal", "x", "--limit", "many"),
        ("journal", "x", "--payload", "morse"),
        ("files", "--colour"),
    ],
    ids=" ".join,
)
def test_bad_usage(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


def test_names_of_bookie_shell_work_but_are_not_in_the_help(root: Path) -> None:
    log = root / "ledgers" / "current" / "0.log"
    assert rows("lastmark", root) == rows("mark", root)
    assert rows("listfilesondisc", root) == rows("files", root)
    assert rows("readlog", log) == rows("log", log)
    assert rows("readlogmetadata", log) == rows("log", "--metadata", log)
    assert rows("readjournal", f"{JOURNAL_ID:x}", "--dir", root) == rows(
        "journal", f"{JOURNAL_ID:x}", "--dir", root
    )
    assert not any(alias in run("--help").stdout for alias in ALIASES)


def test_help_lists_every_command_and_each_has_an_example() -> None:
    text = run("--help").stdout
    assert all(f"\n  {name} " in text for name in COMMANDS)
    for name in COMMANDS:
        assert f"ledgerstore {name}" in run(name, "--help").stdout.partition("Examples:")[2]


def commands_below(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from commands_below(below, click.Context(below, info_name=name, parent=context))


@pytest.fixture(scope="module")
def commands() -> list[tuple[click.Command, click.Context]]:
    """All commands, imported before the test begins, because that takes half a second."""
    return list(commands_below(cli, click.Context(cli, info_name="ledgerstore")))


def test_every_option_names_its_value_and_is_described_by_sentences(
    commands: list[tuple[click.Command, click.Context]],
) -> None:
    wrong = []
    for command, context in commands:
        for option in command.params:
            if not isinstance(option, click.Option) or option.hidden:
                continue
            value = "" if option.is_flag else option.make_metavar(context)
            words = option.help or ""
            is_named = not value.startswith(("TEXT", "INTEGER", "FLOAT"))
            if not is_named or not words.endswith((".", "]")) or "(default" in words:
                wrong.append((context.command_path, option.opts, value, words))
    assert wrong == []


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom recovery.shell.main import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "click" in loaded
    assert loaded.isdisjoint(HEAVY)
    assert "storage" not in loaded


def test_listing_a_journal_loads_neither_numpy_nor_rich(root: Path) -> None:
    code = (
        "import sys\nfrom recovery.shell.main import cli\n"
        f"try: cli.main(['journal', '{JOURNAL_ID:x}', '--dir', {str(root)!r}])\n"
        "except SystemExit: pass\nprint(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stderr.split()}.isdisjoint(
        {"numpy", "rich", "lmdb", "asyncio"}
    )


def test_version_is_printed() -> None:
    assert run("--version").stdout.startswith("ledgerstore 0.")


def test_a_closed_pipe_ends_quietly(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(bookie_journal([records(ledger(7, 5000))]))
    command = [*COMMAND, "journal", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        stderr = running.stderr.read()
        running.wait(60)
    assert (running.returncode, stderr) == (0, b"")


def test_an_interrupt_ends_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(bookie_journal([records(ledger(7, 5000))]))
    command = [*COMMAND, "journal", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()  # it is at work now, and waits for a reader soon
        running.send_signal(signal.SIGINT)
        running.stdout.read()
        stderr = running.stderr.read()
        running.wait(60)
    assert running.returncode == 130
    assert b"Traceback" not in stderr


def test_a_terminal_gets_colour_and_a_pipe_does_not(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(flipped(bookie_journal([records(ledger(7, 3))]), 560))
    assert "\x1b[31m" in on_terminal("journal", path)
    assert "\x1b" not in process("journal", path).stdout


def test_no_color_turns_colour_off(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(flipped(bookie_journal([records(ledger(7, 3))]), 560))
    plain = on_terminal("journal", path, NO_COLOR="1")
    assert "\x1b" not in plain
    assert plain == process("journal", path).stdout


def test_a_narrow_terminal_leaves_out_columns_but_not_the_detail_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / f"{JOURNAL_ID:x}.txn"
    path.write_bytes(our_journal([records(ledger(7, 3))]))
    heading, *lines = on_terminal("journal", path, columns=60, NO_COLOR="1").splitlines()
    assert all(len(line) <= 60 for line in (heading, *lines))
    assert {"offset", "kind", "ledger", "entry", "ok"} <= set(heading.split())
    assert "version" not in heading
    assert all(line.split()[-1] == "ok" for line in lines)


def test_columns_are_aligned_and_rows_stream(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(bookie_journal([records(ledger(7, 1200))]))
    lines = run("journal", path).stdout.splitlines()
    assert len(lines) == 1201
    assert {line.index("CRC32C") for line in lines[1:]} == {lines[0].index("digest_type")}
