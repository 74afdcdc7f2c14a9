"""The API reference and the public classes of `ledgerstore` show the public interface and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import ledgerstore

BUILD = Path(__file__).parent.parent / "docs" / "build_reference.py"


def test_a_store_has_no_public_method_that_only_the_package_calls() -> None:
    assert {name for name in dir(ledgerstore.Store) if not name.startswith("_")} == {
        "add",
        "bookie",
        "checkpoint",
        "close",
        "collect",
        "delete",
        "ledger",
        "ledgers",
        "opened",
        "path",
        "pause_collection",
        "resume_collection",
        "space",
        "stats",
        "stop_followers",
        "topic",
    }


@pytest.mark.parametrize("name", ["Store", "AsyncStore", "Ledger", "AsyncLedger", "Follower", "ViewLedger"])
def test_every_public_member_has_a_docstring(name: str) -> None:
    members = {key: value for key, value in vars(getattr(ledgerstore, name)).items() if key[0] != "_"}
    without = {key for key, value in members.items() if not value.__doc__ and key != "id"}
    assert without == set()


@pytest.mark.slow(3)
def test_the_reference_documents_the_open_report_and_no_constructor_that_users_do_not_call(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, str(BUILD), str(tmp_path)], check=True)
    page = (tmp_path / "ledgerstore.html").read_text()
    for shown in (
        "Store.opened",
        "AsyncStore.opened",
        "View.refresh",
        "Follower.stop",
        "StoreConfig.__init__",
    ):
        assert f'id="{shown}"' in page
    for hidden in (
        "Store.forked",
        "Store.__init__",
        "Follower.__init__",
        "View.digester",
        "View.consistently",
    ):
        assert f'id="{hidden}"' not in page
