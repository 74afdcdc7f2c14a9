"""Files that the recorder cannot follow are reported as not covered."""

from __future__ import annotations

import mmap
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from recovery.crashlab import Command, CrashLab, Ctx
from recovery.crashlab.judge.run_figures import Status

if TYPE_CHECKING:
    from pathlib import Path

    from recovery.crashlab import LabReport

# The first word of the command chooses how it writes. All ways are durable, but only the last is fully
# recorded.
SOURCE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void mark(const char *line)
{
    if (write(atoi(getenv("CRASHLAB_MARKS")), line, strlen(line)) < 0) exit(3);
}

int main(int count, char **words)
{
    char path[4096];
    if (count != 3 || chdir(words[2])) return 2;
    int directory = open(".", O_RDONLY);
    snprintf(path, sizeof path, "%s/cups", words[2]);
    mark("[\"invoke\",1,\"add\",\"cups\",\"tea\"]\n");
    if (!strcmp(words[1], "stdio")) {
        FILE *file = fopen(path, "w");
        fputs("tea", file);
        fflush(file);
        fsync(fileno(file));
    } else if (!strcmp(words[1], "mapped")) {
        int fd = open(path, O_RDWR | O_CREAT, 0666);
        if (ftruncate(fd, 3)) return 3;
        char *place = mmap(NULL, 3, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        memcpy(place, "tea", 3);
        msync(place, 3, MS_SYNC);
    } else {
        int fd = open(path, O_WRONLY | O_CREAT, 0666);
        if (write(fd, "tea", 3) != 3) return 3;
        fsync(fd);
    }
    fsync(directory);
    if (!strcmp(words[1], "marks by stdio")) dprintf(atoi(getenv("CRASHLAB_MARKS")), "[\"ack\",1]\n");
    else mark("[\"ack\",1]\n");
    return 0;
}
"""


def recover(root: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in root.iterdir()}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the program, linked dynamically and statically.

    No library can be preloaded into a static one.
    """
    if not shutil.which("cc"):
        pytest.skip("NOT RUN: no C compiler (cc)")
    place = tmp_path_factory.mktemp("programs")
    (place / "cups.c").write_text(SOURCE)
    for name, *flags in (("cups",), ("static", "-static")):
        subprocess.run(["cc", "-O2", *flags, "-o", place / name, place / "cups.c"], check=True)
    return place


def crashed(lab: CrashLab, place: Path) -> LabReport:
    return lab.run(["model", "kill"], jobs=1, out=place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "how", "what"),
    [
        ("cups", "stdio", "cups: the recorder has not seen it made"),
        ("cups", "mapped", "cups: map, whose effects the recorder does not see"),
        ("cups", "marks by stdio", "marks: the recorder has not seen all of them"),
        ("static", "write", "cups: the recorder has not seen it made"),
    ],
)
def test_changes_that_the_recorder_does_not_see_are_reported(
    tmp_path: Path, programs: Path, program: str, how: str, what: str
) -> None:
    lab = CrashLab({"cups": Command([str(programs / program), how, "{root}"])}, recover)
    report = crashed(lab, tmp_path)
    assert f"cups: {what}" in " ".join(report.numbers.uncovered)
    for name in ("model", "kill"):
        assert report.numbers.layer(name).status is Status.CUT_SHORT
        assert "not recorded" in report.numbers.layer(name).why
    with pytest.raises(AssertionError, match="not covered"):
        report.assert_ok()


def test_the_same_program_is_covered_when_it_writes(tmp_path: Path, programs: Path) -> None:
    report = crashed(CrashLab(Command([str(programs / "cups"), "write", "{root}"]), recover), tmp_path)
    assert report.numbers.uncovered == []
    assert report.numbers.layer("model").status is Status.COMPLETE


def into_a_mapping(root: Path, ctx: Ctx) -> None:
    fd = os.open(root / "cups", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 3)
    with ctx.doing("add", "cups", "tea"), mmap.mmap(fd, 3) as place:
        place[:] = b"tea"
        place.flush()


@pytest.mark.slow
def test_a_mapping_of_a_file_that_is_ignored_needs_no_cover(tmp_path: Path) -> None:
    def shows_nothing(_: Path) -> dict[str, str]:
        return {}

    def made_beside(root: Path, ctx: Ctx) -> None:
        into_a_mapping(root, Ctx(os.open(os.devnull, os.O_WRONLY)))
        ctx.ack(ctx.invoke("nothing"))

    assert crashed(CrashLab(into_a_mapping, recover), tmp_path).numbers.uncovered
    report = crashed(CrashLab(made_beside, shows_nothing, ignore=["cups"]), tmp_path)
    assert report.numbers.uncovered == []
    report.assert_ok()


def by_a_copy_of_the_descriptor(root: Path, ctx: Ctx) -> None:
    again = Ctx(os.dup(ctx._marks))  # noqa: SLF001 - a program that copies all of its descriptors
    with again.doing("add", "cups", "tea"):
        (root / "cups").write_text("tea")


def test_a_mark_is_recorded_through_any_descriptor_of_the_file(tmp_path: Path) -> None:
    report = crashed(CrashLab(by_a_copy_of_the_descriptor, recover), tmp_path)
    assert report.numbers.uncovered == []
    assert "LOST" in {one.kind for one in report.violations}
