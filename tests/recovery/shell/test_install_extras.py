"""The command after each way to install the package: `ledgerstore` and `[audit]`.

The packages that an installation does not have are hidden from the command by the finders of its process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from recovery import open_store

if TYPE_CHECKING:
    from pathlib import Path

# The wrapped finders return `None` and do not raise, because a package that is not installed is not found.
HIDING = """
import sys
class Hiding:
    def __init__(self, finder): self.finder = finder
    def __getattr__(self, name): return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] in hidden else self.finder.find_spec(name, path, target)
hidden = sys.argv.pop(1).split(",")
sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
from recovery.shell.main import main
main()
"""
CONNECTING = HIDING.replace("recovery.shell.main import main\nmain()", "storage.cluster import {name}")
DEVELOPMENT = "kazoo,hypothesis,pytest,plyvel,rocksdict"
BASE = f"pyarrow,pyspark,{DEVELOPMENT}"
AUDIT = DEVELOPMENT
NOT_INSTALLED = 69


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("made") / "store"
    with open_store(root) as store:
        store.ledger(1).append_many([b"one", b"two"])
    return root


def without(hidden: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", HIDING, hidden, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("arguments", [("ledgers",), ("read", "1")], ids=" ".join)
def test_the_base_installation_lists_ledgers_and_entries(made: Path, arguments: tuple[str, ...]) -> None:
    done = without(BASE, *arguments, made)
    assert done.returncode == 0, done.stderr


def test_the_base_installation_says_in_one_line_what_an_audit_needs(made: Path) -> None:
    done = without(BASE, "audit", made)
    assert (done.returncode, done.stdout) == (NOT_INSTALLED, "")
    assert done.stderr == "ledgerstore: audit needs pyarrow: pip install 'ledgerstore[audit]'\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("ledgers", "zk://localhost/ledgers"),
        ("cluster", "init", "zk://localhost/ledgers"),
        ("cluster", "up", "nowhere"),
    ],
    ids=["ledgers", "cluster init", "cluster up"],
)
def test_the_base_installation_says_in_one_line_what_a_command_for_a_cluster_needs(
    arguments: tuple[str, ...],
) -> None:
    done = without(BASE, *arguments)
    assert (done.returncode, done.stdout) == (NOT_INSTALLED, "")
    command = " ".join(arguments[:-1])
    assert done.stderr == f"ledgerstore: {command} needs kazoo: pip install 'ledgerstore[cluster]'\n"


@pytest.mark.parametrize("name", ["connect", "connect_async"])
def test_the_base_installation_says_what_a_client_of_a_cluster_needs(name: str) -> None:
    command = [sys.executable, "-c", CONNECTING.format(name=name), BASE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (
        done.stderr.splitlines()[-1]
        == "ModuleNotFoundError: the metadata of a cluster need kazoo: pip install 'ledgerstore[cluster]'"
    )


@pytest.mark.slow
@pytest.mark.parametrize("what", ["", "ledgers/current/0.log"], ids=["store", "file"])
def test_the_base_installation_verifies_a_store_and_a_file(made: Path, what: str) -> None:
    done = without(BASE, "verify", made / what)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("verify: ")


@pytest.mark.slow
def test_audit_writes_a_report(made: Path, tmp_path: Path) -> None:
    done = without(AUDIT, "audit", made, "--out", tmp_path / "report")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report" / "report.html").exists()


@pytest.mark.parametrize("package", ["numpy", "duckdb"])
def test_a_missing_package_is_named_also_when_an_import_fails_later(made: Path, package: str) -> None:
    """A command that did not check for the package at its start ends in the same way."""
    done = without(package, "verify", made, "--json")
    assert (done.returncode, done.stdout) == (NOT_INSTALLED, "")
    [line] = done.stderr.splitlines()
    assert json.loads(line) == {
        "error": f"{package} is not installed: pip install ledgerstore",
        "exit_code": NOT_INSTALLED,
    }
