"""Commands that fail: exit codes, one line on stderr, suggestions."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, NoReturn

import pytest
from shell_samples import JOURNAL_ID, bookie_journal, ledger, records, rows, run, store, verdict

from recovery.shell.exit_codes import Exit
from recovery.shell.main import COMMANDS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return store(tmp_path)


def broken(*_: object) -> NoReturn:
    raise KeyError("there is a bug")


# ── unexpected errors ────────────────────────────────────────────────────────────────────────────────────


def test_an_unexpected_error_is_one_line_and_exits_with_70(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recovery.shell.commands.mark.mark_rows", broken)
    done = run("mark", root)
    assert (done.exit_code, done.stdout) == (70, "")
    assert done.stderr == (
        "ledgerstore: unexpected error: KeyError: 'there is a bug' "
        "(`ledgerstore --debug …` prints the traceback)\n"
    )


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_prints_the_traceback_too(root: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr("recovery.shell.commands.mark.mark_rows", broken)
    if how == "variable":
        monkeypatch.setenv("LEDGERSTORE_DEBUG", "1")
    done = run(*(["--debug"] if how == "option" else []), "mark", root)
    assert done.exit_code == 70
    assert "in broken" in done.stderr
    assert verdict(done).startswith("ledgerstore: unexpected error: KeyError")


def test_a_process_with_an_unexpected_error_exits_with_70() -> None:
    code = (
        "import recovery.shell.commands.mark as m; m.mark_rows = None; "
        "from recovery.shell.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "mark"], capture_output=True, text=True, check=False)
    assert done.returncode == 70
    assert "Traceback" not in done.stderr


def test_the_help_lists_every_exit_code() -> None:
    text = run("--help").stdout.partition("Exit codes:")[2]
    listed = {
        int(line.split()[0]) for line in text.splitlines() if line.split() and line.split()[0].isdigit()
    }
    assert listed == {code.value for code in Exit}


def test_the_help_shows_how_to_enable_completion_in_each_shell() -> None:
    text = run("--help").stdout
    assert all(f"_LEDGERSTORE_COMPLETE={shell}_source" in text for shell in ("bash", "zsh", "fish"))


OF_NO_STORE = (
    "crash",
    "metadata",
    "cluster",
    "cluster-sim",
    "bookie",
    "top",
    "topic",
    "cookie",
    "autorecovery",
    "check",
    "recover",
    "decommission",
    "underreplicated",
)
"""Commands that do not work on one store."""


# ── typing errors ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["jornal"], "journal"),
        (["verfy"], "verify"),
        (["rebuild_index"], "rebuild-index"),
        (["readjornal"], "readjournal"),
        (["crash", "rnu"], "run"),
    ],
    ids=" ".join,
)
def test_a_mistyped_command_gets_a_suggestion(typed: list[str], meant: str) -> None:
    done = run(*typed)
    assert done.exit_code == 2
    assert verdict(done) == f"Error: no such command: {typed[-1]}; did you mean {meant}?"


def test_a_mistyped_option_gets_a_suggestion() -> None:
    done = run("bookie", "--advertized")
    assert done.exit_code == 2
    assert verdict(done) == "Error: No such option '--advertized'. Did you mean '--advertised'?"


def test_an_option_that_has_only_its_dashes_in_common_with_others_gets_no_suggestion() -> None:
    done = run("bookie", "--json")  # click alone would suggest --conf
    assert json.loads(done.stderr) == {"error": "No such option '--json'.", "exit_code": 2}


def test_an_unknown_command_without_a_similar_one_gets_no_suggestion() -> None:
    assert verdict(run("xyzzy")) == "Error: no such command: xyzzy"


@pytest.mark.parametrize(
    "name",
    [name for name in COMMANDS if name not in ("audit", *OF_NO_STORE)],
)
def test_json_and_ndjson_together_are_a_usage_error(name: str) -> None:
    takes_one = ("journal", "log", "ledger", "read", "rebuild-index", "handover")
    needed = ["1"] if name in takes_one else []
    done = run(name, *needed, "--ndjson", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--json and --ndjson" in done.stderr


@pytest.mark.parametrize("form", ["--json", "--ndjson"])
def test_errors_of_a_command_that_prints_json_are_json(tmp_path: Path, form: str) -> None:
    missing = tmp_path / "nothing"
    done = run("files", missing, form)
    assert (done.exit_code, done.stdout) == (3, "")
    assert json.loads(done.stderr) == {"error": f"no such directory: {missing}", "exit_code": 3}
    done = run("read", "many", tmp_path, form)
    assert json.loads(done.stderr)["exit_code"] == done.exit_code == 2


# ── how the store is named ───────────────────────────────────────────────────────────────────────────────

READING = [
    ("files",),
    ("mark",),
    ("journal", f"{JOURNAL_ID:x}"),
    ("log", "0"),
    ("explain", "0.log@1024"),
]


@pytest.mark.parametrize("call", READING, ids=" ".join)
def test_the_store_is_the_last_argument_or_the_variable_or_the_current_directory(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: tuple[str, ...]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    named = rows(*call, root)
    assert named
    monkeypatch.setenv("LEDGERSTORE_DIR", str(root))
    assert rows(*call) == named
    monkeypatch.delenv("LEDGERSTORE_DIR")
    monkeypatch.chdir(root)
    assert len(rows(*call)) == len(named)


@pytest.mark.parametrize("call", READING[2:], ids=" ".join)
def test_the_former_option_dir_works_but_is_not_in_the_help(root: Path, call: tuple[str, ...]) -> None:
    assert rows(*call, "--dir", root) == rows(*call, root)
    assert "--dir" not in run(call[0], "--help").stdout
    assert run(*call, root, "--dir", root).exit_code == 2


@pytest.mark.parametrize(
    "name",
    [name for name in COMMANDS if name not in ("demo", *OF_NO_STORE)],
)
def test_every_command_calls_the_store_by_the_same_word(name: str) -> None:
    usage = run(name, "--help").stdout.splitlines()[0]
    assert usage.endswith(("STORE", "[STORE]", "[STORE|FILE]", "[STORE]..."))


@pytest.mark.parametrize("name", ["rebuild-index", "handover"])
def test_a_command_that_changes_a_store_never_uses_the_current_directory_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(name).exit_code == 2
    monkeypatch.setenv("LEDGERSTORE_DIR", str(tmp_path / "nothing"))
    assert verdict(run(name)) == f"ledgerstore: no such directory: {tmp_path / 'nothing'}"


# ── files that are something else ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", ["journal", "log"])
@pytest.mark.parametrize("content", [b"hello", b"x" * 5000, b""], ids=["short", "long", "empty"])
def test_a_file_of_another_kind_ends_with_exit_code_3(tmp_path: Path, command: str, content: bytes) -> None:
    path = tmp_path / "text.txt"
    path.write_bytes(content)
    done = run(command, path)
    assert (done.exit_code, done.stdout) == (3, "")
    what = "a journal" if command == "journal" else "an entry log"
    assert verdict(done).startswith(f"ledgerstore: {path} is not {what}: ")


def test_a_journal_under_another_name_is_listed(tmp_path: Path) -> None:
    path = tmp_path / "copy of a journal"
    path.write_bytes(bookie_journal([records(ledger(7, 3))]))
    assert run("journal", path).exit_code == 0


def test_a_journal_with_a_damaged_header_is_listed_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "1.txn"
    path.write_bytes(b"hello")
    assert run("journal", path).exit_code == 0
