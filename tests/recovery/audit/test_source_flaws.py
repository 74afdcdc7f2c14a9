"""Tables of damaged and unreadable files: each says what is wrong, and none passes as empty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import small_stores

from storage.disk import filenames
from storage.entrylog.format import HEADER_SIZE

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("pyspark")

from recovery.audit.spark.data_sources import EntryLogSource, LedgerIndexSource


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_stores.make(tmp_path_factory.mktemp("flaws") / "store") / "ledgers/current"


@pytest.fixture
def logs(whole: Path, tmp_path: Path) -> Path:
    """A directory with copies of the logs."""
    for number in range(3):
        name = filenames.entry_log(number)
        (tmp_path / name).write_bytes((whole / name).read_bytes())
    return tmp_path


def rows(
    source: type[EntryLogSource | LedgerIndexSource], path: Path, **options: str
) -> list[dict[str, Any]]:
    reader = source({"path": str(path), **options}).reader(None)  # type: ignore[arg-type]
    found: list[Any] = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in found for row in batch.to_pylist()]


def flaws(path: Path) -> list[tuple[int, str, int]]:
    return [(row["log"], row["kind"], row["offset"]) for row in rows(EntryLogSource, path, rows="flaws")]


def test_sound_logs_have_no_flaws(logs: Path) -> None:
    assert flaws(logs) == []


def test_a_sealed_log_that_was_cut_has_a_flaw_at_its_end(logs: Path) -> None:
    log = logs / "1.log"
    log.write_bytes(log.read_bytes()[:50_000])
    assert [(one, kind) for one, kind, _ in flaws(logs)] == [(1, "END")]


def test_a_sealed_log_that_ends_with_zeros_has_a_flaw_where_they_begin(logs: Path) -> None:
    log = logs / "1.log"
    data = log.read_bytes()
    log.write_bytes(data[:50_000] + bytes(len(data) - 50_000))
    ((log_id, kind, offset),) = [one for one in flaws(logs) if one[1] in {"END", "TORN"}]
    assert (log_id, kind) == (1, "END")
    assert 50_000 <= offset < 50_100


def test_an_emptied_log_has_a_flaw(logs: Path) -> None:
    (logs / "1.log").write_bytes(b"")
    assert flaws(logs) == [(1, "END", 0)]


def test_a_file_that_cannot_be_read_leaves_all_others_readable(logs: Path) -> None:
    (logs / "1.log").unlink()
    (logs / "1.log").mkdir()
    (logs / "2.log").unlink()
    (logs / "2.log").symlink_to("nowhere")
    assert [(one, kind) for one, kind, _ in flaws(logs)] == [(1, "UNREADABLE"), (2, "UNREADABLE")]
    endings = {row["log"]: row["ending"] for row in rows(EntryLogSource, logs, rows="parts")}
    assert endings == {0: "EndOfData", 1: "Unreadable", 2: "Unreadable"}
    assert {row["log"] for row in rows(EntryLogSource, logs)} == {0}


def test_a_query_may_ask_to_fail_on_such_a_file(logs: Path) -> None:
    (logs / "1.log").unlink()
    (logs / "1.log").mkdir()
    with pytest.raises(OSError, match=r"regular|directory"):
        rows(EntryLogSource, logs, unreadable="fail")


def test_the_flaws_of_an_index_that_cannot_be_read_say_why(whole: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    index.mkdir()
    for path in (whole / "index").iterdir():
        data = bytearray(path.read_bytes())
        if path.name == "data.mdb":
            data[HEADER_SIZE * 8 : HEADER_SIZE * 8 + 64] = bytes(64)
            data[:HEADER_SIZE] = bytes(HEADER_SIZE)
        (index / path.name).write_bytes(data)
    (row,) = rows(LedgerIndexSource, tmp_path, rows="flaws")
    assert row["detail"]
    with pytest.raises(OSError, match="no readable index"):
        rows(LedgerIndexSource, tmp_path)
