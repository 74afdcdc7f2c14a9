"""Find the Java that Spark needs, and its version, without any output of Java's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

JAVA_MIN = 17

_TIMEOUT_S = 30
_VERSION = re.compile(r'version "([^"]+)"')
_RELEASE = re.compile(r'^JAVA_(?:RUNTIME_)?VERSION="([^"]+)"', re.MULTILINE)
_FAMILIES = (
    ("ubuntu", ("apt-get", "install", "-y", "openjdk-17-jre-headless")),
    ("debian", ("apt-get", "install", "-y", "default-jre-headless")),
    ("fedora", ("dnf", "install", "-y", "java-21-openjdk-headless")),
    ("rhel", ("dnf", "install", "-y", "java-21-openjdk-headless")),
    ("suse", ("zypper", "-n", "install", "java-21-openjdk-headless")),
    ("arch", ("pacman", "-S", "--noconfirm", "jre21-openjdk-headless")),
    ("alpine", ("apk", "add", "openjdk21-jre-headless")),
)
_MACOS = "brew install openjdk@17 && export JAVA_HOME=$(brew --prefix openjdk@17)"
_ANYWHERE = "a Java 17 from https://adoptium.net, and JAVA_HOME set to where it is"


class SparkUnavailable(Exception):
    """Spark cannot run here. The message is one line that says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Java:
    """An installed Java. `build` identifies it, so that what was prepared for another Java is not used."""

    home: Path
    build: str

    @property
    def version(self) -> int:
        """The major version: 17 for `17.0.15+6`, and 8 for `1.8.0_412`."""
        first, second = [*re.findall(r"\d+", self.build), "0", "0"][:2]
        return int(second if first == "1" else first)


def find_java(
    environment: Mapping[str, str] = os.environ, ask: Callable[[Path], str | None] | None = None
) -> Java:
    """Return the first Java that is new enough: that of JAVA_HOME, or the one on the PATH. Raise
    `SparkUnavailable` otherwise.

    `ask` returns the version of the Java in a directory, or `None` if there is none.
    """
    too_old: Java | None = None
    for home in _homes(environment):
        build = (ask or _build_of)(home)
        if build is None:
            continue
        java = Java(home, build)
        if java.version >= JAVA_MIN:
            return java
        too_old = too_old or java
    raise SparkUnavailable(_why(too_old))


def _homes(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"])
    found = shutil.which("java", path=environment.get("PATH", ""))
    if found:
        yield Path(found).resolve().parent.parent


def _build_of(home: Path) -> str | None:
    """Read the version from the `release` file, because starting Java takes a tenth of a second."""
    if not (home / "bin/java").exists():
        return None
    try:
        said = _RELEASE.findall((home / "release").read_text())
    except (OSError, UnicodeDecodeError):
        said = []
    return max(said, key=len) if said else _version_from_java(home / "bin/java")


def _version_from_java(program: Path) -> str | None:
    """Ask Java for its version. The stand-in that macOS has where Java is missing prints no version."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own Java
            [program, "-version"], check=False, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = _VERSION.search(done.stderr)
    return said.group(1) if said and done.returncode == 0 else None


def _why(too_old: Java | None) -> str:
    found = "none was found" if too_old is None else f"{too_old.home} is Java {too_old.version}"
    return f"Spark needs Java {JAVA_MIN} or newer, but {found}; to install one: {how_to_install()}"


def how_to_install(platform: str = sys.platform, release: Path = Path("/etc/os-release")) -> str:
    """Return the instruction for this system, in one line."""
    command = install_command(release)
    if platform == "darwin":
        return _MACOS
    return _ANYWHERE if command is None else " ".join(("sudo", *command))


def install_command(release: Path = Path("/etc/os-release")) -> tuple[str, ...] | None:
    """Return the command of this system's package manager that installs a Java, or `None` if it
    is not known.
    """
    like = _families(release)
    return next((command for family, command in _FAMILIES if family in like), None)


def _families(release: Path) -> set[str]:
    try:
        lines = release.read_text().splitlines()
    except OSError:
        return set()
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    return {word for key in ("ID", "ID_LIKE") for word in fields.get(key, "").strip('"').split()}
