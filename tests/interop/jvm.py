"""The real Apache BookKeeper: built once, and then one process that answers for the whole run."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
MADE = HERE.parent.parent / ".interop"

_OPTIONS = (
    *("-Xmx768m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # BookKeeper looks for file descriptors in Java's own classes, and says so when it may not.
    *("--add-opens=java.base/java.io=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
)
_ANSWER_S = 120
_BUILD_S = 900
# What Maven says when it is not our code but the way to the registry that is at fault.
_UNREACHED = (
    "Could not transfer",
    "failed to transfer",
    "Unknown host",
    "Connection refused",
    "Connection timed out",
    "Network is unreachable",
    "in offline mode",
)


class NotReached(Exception):
    """There is no Java, no Maven, or no way to the registry: nothing could be tried."""


class BuildFailed(Exception):
    """The driver does not compile."""


class CommandFailed(AssertionError):
    """The driver has answered with an exception, or not at all."""


# ── building ──────────────────────────────────────────────────────────────────────────────────────────────


def build(made: Path = MADE) -> list[str]:
    """The command that starts the driver, compiled unless that was done; downloads BookKeeper if it must."""
    java = _tool("java")
    classes, classpath, stamp = (made / "build" / name for name in ("classes", "classpath", "stamp"))
    wanted = _stamp()
    if not stamp.exists() or stamp.read_text() != wanted or not _is_whole(classpath):
        _run_maven(made / "build")
        stamp.write_text(wanted)
    return [java, *_OPTIONS, "-cp", f"{classes}:{classpath.read_text().strip()}", "interop.Main"]


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotReached(f"there is no {name} here")
    return found


def _stamp() -> str:
    hasher = hashlib.sha256()
    for path in (HERE / "pom.xml", *_files(HERE / "src")):
        hasher.update(f"{path.relative_to(HERE)} ".encode() + path.read_bytes())
    return hasher.hexdigest()


def _files(directory: Path) -> Iterable[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _is_whole(classpath: Path) -> bool:
    # Somebody may have emptied Maven's own repository since.
    return classpath.exists() and all(Path(jar).exists() for jar in classpath.read_text().strip().split(":"))


def _run_maven(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    options = ("-q", "-B", "-Dstyle.color=never", f"-Dmade={directory}")
    command = [_tool("mvn"), *options, "-f", f"{HERE / 'pom.xml'}", "compile"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotReached(f"Maven was not done after {_BUILD_S} s") from None
    if done.returncode == 0:
        return
    problem = next(
        (line for line in done.stdout.splitlines() if any(one in line for one in _UNREACHED)), None
    )
    if problem is not None:
        raise NotReached(problem)
    raise BuildFailed(done.stdout + done.stderr)


# ── the process ───────────────────────────────────────────────────────────────────────────────────────────


class Driver:
    """The running driver; threads may ask at the same time. What BookKeeper logs is in `driver.log`."""

    def __init__(self, command: list[str], made: Path = MADE) -> None:
        self._log = (made / "driver.log").open("wb")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, cwd=made
        )
        self._lock = Lock()
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._next = 0
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._log.close()

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """The answer to one command; its exception as `CommandFailed`."""
        asked: Future[dict[str, Any]] = Future()
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._asked[number] = asked
            line = json.dumps({"id": number, "command": command, **arguments})
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        answer = asked.result(_ANSWER_S)
        if "error" in answer:
            raise CommandFailed(f"{command} {arguments.get('dir', '')}: {answer['error']}")
        found: dict[str, Any] = answer["answer"]
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            self._asked.pop(answer["id"]).set_result(answer)
        ended = CommandFailed("the driver has ended: driver.log may say why")
        for asked in [*self._asked.values()]:
            asked.set_exception(ended)
