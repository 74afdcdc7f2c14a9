from __future__ import annotations

import os
from typing import TYPE_CHECKING

from recovery.audit.spark.archive import cache_directory, options
from recovery.audit.spark.java import Java

if TYPE_CHECKING:
    from pathlib import Path

JAVA = "17.0.15+6"


def archive_option(home: Path, build: str = JAVA) -> str:
    """Return the option that names the archive, for a Spark in `home`/spark."""
    (home / "spark" / "jars").mkdir(parents=True, exist_ok=True)
    return options(Java(home / "java", build), home / "spark", home / "cache")[0]


def archive(home: Path, build: str = JAVA) -> Path:
    name = archive_option(home, build).partition("=")[2]
    return home / "cache" / os.path.basename(name)  # noqa: PTH119 - the option is no path


def test_the_first_run_makes_the_archive_that_later_runs_use(tmp_path: Path) -> None:
    assert archive_option(tmp_path) == f"-XX:ArchiveClassesAtExit={archive(tmp_path)}"
    archive(tmp_path).write_bytes(b"\xf0\x0b\xab\xa8 and so on")
    assert archive_option(tmp_path) == f"-XX:SharedArchiveFile={archive(tmp_path)}"


def test_an_incomplete_archive_is_made_again(tmp_path: Path) -> None:
    archive(tmp_path).write_bytes(bytes(4) + b"classes, and no header yet")
    assert archive_option(tmp_path).startswith("-XX:ArchiveClassesAtExit=")


def test_another_java_or_spark_has_another_archive(tmp_path: Path) -> None:
    first = archive(tmp_path)
    assert archive(tmp_path, "21.0.1") != first
    os.utime(tmp_path / "spark" / "jars", ns=(0, 0))
    assert archive(tmp_path) != first


def test_the_newest_two_old_archives_are_kept(tmp_path: Path) -> None:
    old = [archive(tmp_path, f"17.0.{number}") for number in range(4)]
    for age, path in enumerate(old):
        path.write_bytes(b"classes")
        os.utime(path, ns=(age, age))
    archive_option(tmp_path)
    assert [path.exists() for path in old] == [False, False, True, True]


def test_without_a_directory_for_the_archive_java_starts_without_it(tmp_path: Path) -> None:
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    (tmp_path / "file").write_text("in the way")
    java = Java(tmp_path / "java", JAVA)
    assert options(java, tmp_path / "spark", tmp_path / "file" / "cache") == ()
    assert options(java, tmp_path / "spark", tmp_path / "with blank") == ()


def test_the_cache_is_in_the_directory_that_the_system_names(tmp_path: Path) -> None:
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "ledgerstore"
    assert cache_directory({}).parts[-2:] == (".cache", "ledgerstore")
