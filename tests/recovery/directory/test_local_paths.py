"""What a path of a user stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.directory.local_paths import NotLocal, local_paths

if TYPE_CHECKING:
    from pathlib import Path


def test_a_plain_path_is_itself_also_if_nothing_is_there() -> None:
    assert local_paths("/no/such/path") == ["/no/such/path"]
    assert local_paths("relative/path") == ["relative/path"]


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
def test_a_file_uri_is_the_path_in_it(form: str, tmp_path: Path) -> None:
    place = tmp_path / "with blank"
    assert local_paths(form.format(str(place).replace(" ", "%20"))) == [str(place)]


def test_a_pattern_is_every_path_that_matches(tmp_path: Path) -> None:
    for name in ("bk2", "bk1", "other"):
        (tmp_path / name).mkdir()
    assert local_paths(f"{tmp_path}/bk*") == [f"{tmp_path}/bk1", f"{tmp_path}/bk2"]
    assert local_paths(f"file://{tmp_path}/bk*") == [f"{tmp_path}/bk1", f"{tmp_path}/bk2"]
    assert local_paths(f"{tmp_path}/none*") == [f"{tmp_path}/none*"]


def test_a_path_that_looks_like_something_else_is_a_path_if_it_exists(tmp_path: Path) -> None:
    for name in ("a[1]", "what?", "s3:"):
        (tmp_path / name).mkdir()
        assert local_paths(str(tmp_path / name)) == [str(tmp_path / name)]


@pytest.mark.parametrize(
    "uri", ["s3a://bucket/bk1", "gs://bucket/bk1", "hdfs://host:9000/bk", "abfss://a@b/c"]
)
def test_a_uri_of_an_object_store_is_one_sentence(uri: str) -> None:
    with pytest.raises(NotLocal, match=r"^\S+: only files of a file system can be read: copy them"):
        local_paths(uri)


def test_a_file_of_another_machine_is_refused() -> None:
    with pytest.raises(NotLocal, match="another machine, host"):
        local_paths("file://host/data")
