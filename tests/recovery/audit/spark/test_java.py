from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from recovery.audit.spark.java import (
    Java,
    SparkUnavailable,
    find_java,
    how_to_install,
    install_command,
)

if TYPE_CHECKING:
    from pathlib import Path


def an_installation(home: Path, said: str = "", release: str = "") -> Path:
    """A directory with a `java` in it that prints this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{said}\n")
    program.chmod(0o755)
    if release:
        (home / "release").write_text(release)
    return home


@pytest.mark.parametrize(
    ("build", "version"),
    [("17.0.15+6-Debian-1deb12u1", 17), ("1.8.0_412", 8), ("21", 21), ("25-ea+3", 25), ("11.0.2", 11)],
)
def test_the_version_is_the_major_number(tmp_path: Path, build: str, version: int) -> None:
    assert Java(tmp_path, build).version == version


def test_java_home_has_priority_over_the_path(tmp_path: Path) -> None:
    one = an_installation(tmp_path / "one", release='JAVA_VERSION="17.0.1"\n')
    other = an_installation(tmp_path / "other", release='JAVA_VERSION="21.0.1"\n')
    found = find_java({"JAVA_HOME": str(other), "PATH": str(one / "bin")})
    assert (found.home, found.version) == (other, 21)
    assert find_java({"PATH": str(one / "bin")}).home == one


def test_an_old_java_home_does_not_hide_a_newer_one_on_the_path(tmp_path: Path) -> None:
    old = an_installation(tmp_path / "old", release='JAVA_VERSION="11.0.2"\n')
    new = an_installation(tmp_path / "new", release='JAVA_VERSION="17.0.1"\n')
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_the_build_is_the_full_version_in_the_release_file(tmp_path: Path) -> None:
    release = 'IMPLEMENTOR="Debian"\nJAVA_RUNTIME_VERSION="17.0.15+6-Debian"\nJAVA_VERSION="17.0.15"\n'
    assert (
        find_java({"JAVA_HOME": str(an_installation(tmp_path, release=release))}).build == "17.0.15+6-Debian"
    )


def test_a_java_without_a_release_file_is_run_for_its_version(tmp_path: Path) -> None:
    says = """echo 'openjdk version "22.0.2" 2024-07-16' >&2"""
    assert find_java({"JAVA_HOME": str(an_installation(tmp_path, says))}).version == 22


def test_the_stand_in_of_a_system_without_java_is_not_a_java(tmp_path: Path) -> None:
    says = "echo 'Unable to locate a Java Runtime.' >&2; exit 1"
    with pytest.raises(SparkUnavailable, match="none was found"):
        find_java({"JAVA_HOME": str(an_installation(tmp_path, says)), "PATH": ""})


def test_a_java_that_is_too_old_is_reported_in_one_line_with_what_to_do(tmp_path: Path) -> None:
    old = an_installation(tmp_path, release='JAVA_VERSION="11.0.2"\n')
    with pytest.raises(SparkUnavailable) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""})
    said = str(caught.value)
    assert said.startswith(f"Spark needs Java 17 or newer, but {old} is Java 11; to install one: ")
    assert "\n" not in said


@pytest.mark.parametrize(
    ("release", "command"),
    [
        ("ID=debian\n", "sudo apt-get install -y default-jre-headless"),
        ('ID=ubuntu\nID_LIKE="debian"\n', "sudo apt-get install -y openjdk-17-jre-headless"),
        ("ID=fedora\n", "sudo dnf install -y java-21-openjdk-headless"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "sudo dnf install -y java-21-openjdk-headless"),
        ("ID=plan9\n", "a Java 17 from https://adoptium.net, and JAVA_HOME set to where it is"),
    ],
    ids=["debian", "ubuntu", "fedora", "rocky", "another"],
)
def test_how_to_install_one_depends_on_the_system(tmp_path: Path, release: str, command: str) -> None:
    (tmp_path / "os-release").write_text(release)
    assert how_to_install("linux", tmp_path / "os-release") == command


def test_macos_has_its_own_instruction(tmp_path: Path) -> None:
    assert how_to_install("darwin", tmp_path / "none").startswith("brew install openjdk@17")
    assert install_command(tmp_path / "none") is None
