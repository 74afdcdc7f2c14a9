"""Files that a real bookie wrote, and small vectors made by hand."""

from __future__ import annotations

import json
import tarfile
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

FIXTURES = Path(__file__).parent.parent / "fixtures"
GOLDEN = FIXTURES / "golden"
SETS = sorted(path.name.removesuffix(".tar.xz") for path in (FIXTURES / "bookkeeper").glob("*.tar.xz"))

# Unpacked once for all tests, and removed when the interpreter ends.
_UNPACKED = TemporaryDirectory(prefix="bookkeeper-")


@cache
def bookie(name: str) -> Path:
    """Return the unpacked directory of one set: `bookie/`, `dumps/`, `manifest.json`."""
    with tarfile.open(FIXTURES / "bookkeeper" / f"{name}.tar.xz") as archive:
        archive.extractall(_UNPACKED.name, filter="data")
    return Path(_UNPACKED.name) / name


def journals(name: str) -> list[Path]:
    return sorted((bookie(name) / "bookie/journal/current").glob("*.txn"))


def entry_logs(name: str) -> list[Path]:
    return sorted((bookie(name) / "bookie/ledgers/current").glob("*.log"))


def dump(name: str, what: str) -> list[dict[str, Any]]:
    """Return the records that BookKeeper's readers listed, one JSON object per line."""
    path = bookie(name) / "dumps" / f"{what}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


@cache
def manifest(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bookie(name) / "manifest.json").read_text())
    return found


def passwords(name: str) -> dict[int, bytes]:
    return {ledger["ledger"]: ledger["password"].encode() for ledger in manifest(name)["ledgers"]}


@cache
def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()
