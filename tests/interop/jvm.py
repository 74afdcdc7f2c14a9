"""The real Apache BookKeeper and Pulsar: built once, then run as processes that answer commands."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HERE = Path(__file__).parent
MADE = HERE.parent.parent / ".interop"

_OPTIONS = (
    *("-Xmx768m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    # BookKeeper reads file descriptors from Java's own classes, and logs a warning if it may not.
    *("--add-opens=java.base/java.io=ALL-UNNAMED", "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"),
)
_ANSWER_S = 120
_BUILD_S = 900
# Maven's messages when the registry cannot be reached, which is no error of our code.
_UNREACHED = (
    "Could not transfer",
    "failed to transfer",
    "Unknown host",
    "Connection refused",
    "Connection timed out",
    "Network is unreachable",
    "in offline mode",
)


class NotAvailable(Exception):
    """Java, Maven or the registry is missing, so nothing was tested."""


class BuildFailed(Exception):
    """The Java programs do not compile."""


class CommandFailed(AssertionError):
    """The driver has answered with an exception, or has ended."""


class Project(NamedTuple):
    """Java programs of ours, and what they run against."""

    source: Path
    """The directory of its pom and its sources."""
    made: Path
    """Where its classes go, and the list of its jars."""
    properties: tuple[str, ...] = ()
    """Properties of the pom, as options of Maven."""


BOOKKEEPER = Project(HERE, MADE / "build")
OLDER = "4.17.3"
OLDER_CLIENT = Project(
    HERE, MADE / f"build-{OLDER}", (f"-Dbookkeeper.version={OLDER}", "-Dsources=interop/Client*.java")
)
"""The clients among our programs, compiled for an older BookKeeper."""
PULSAR = Project(HERE / "pulsar", MADE / "build-pulsar")
CLIENT_TESTS = Project(HERE / "client_tests", MADE / "build-client-tests")


def exit_code_of(name: str, work: Callable[[], int]) -> int:
    """Run the work of a program, and return the exit code. It is 0 if nothing could be tested here."""
    try:
        return work()
    except NotAvailable as reason:
        print(f"{name}: NOT RUN: {reason}")
        return 0
    except BuildFailed as error:
        print(f"{name}: the Java programs do not compile\n{error}", file=sys.stderr)
        return 1


# ── building ──────────────────────────────────────────────────────────────────────────────────────────────


def build() -> list[str]:
    """Return the command that starts the driver. Compile it and download BookKeeper if necessary."""
    java = tool("java")
    return [java, *_OPTIONS, "-cp", f"{BOOKKEEPER.made / 'classes'}:{classpath()}", "interop.Main"]


def classpath(project: Project = BOOKKEEPER) -> str:
    """Return the jars of BookKeeper and of everything that it needs, ZooKeeper among them, or of Pulsar."""
    jars, stamp = (project.made / name for name in ("classpath", "stamp"))
    wanted = _stamp(project)
    if not stamp.exists() or stamp.read_text() != wanted or not _is_whole(jars):
        _run_maven(project)
        stamp.write_text(wanted)
    return jars.read_text().strip()


def tool(name: str) -> str:
    """Return the path of a program, or raise `NotAvailable`."""
    found = shutil.which(name)
    if found is None:
        raise NotAvailable(f"there is no {name} here")
    return found


def _stamp(project: Project) -> str:
    hasher = hashlib.sha256()
    for path in (project.source / "pom.xml", *_files(project.source / "src")):
        hasher.update(f"{path.relative_to(project.source)} ".encode() + path.read_bytes())
    return hasher.hexdigest()


def _files(directory: Path) -> Iterable[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def _is_whole(classpath: Path) -> bool:
    # Maven's local repository may have been emptied since the build.
    return classpath.exists() and all(Path(jar).exists() for jar in classpath.read_text().strip().split(":"))


def _run_maven(project: Project) -> None:
    shutil.rmtree(project.made, ignore_errors=True)
    options = ("-q", "-B", "-Dstyle.color=never", f"-Dmade={project.made}", *project.properties)
    command = [tool("mvn"), *options, "-f", f"{project.source / 'pom.xml'}", "compile"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_BUILD_S, check=False)
    except subprocess.TimeoutExpired:
        raise NotAvailable(f"Maven was not done after {_BUILD_S} s") from None
    if done.returncode == 0:
        return
    problem = next(
        (line for line in done.stdout.splitlines() if any(one in line for one in _UNREACHED)), None
    )
    if problem is not None:
        raise NotAvailable(problem)
    raise BuildFailed(done.stdout + done.stderr)


# ── the process ───────────────────────────────────────────────────────────────────────────────────────────


class JavaProcess:
    """A JVM that gets lines and prints lines, which a thread takes."""

    def __init__(
        self,
        command: list[str],
        directory: Path,
        log: Path,
        take: Callable[[bytes], object],
        ended: Callable[[], object],
    ) -> None:
        """`take` gets each line that it prints; `ended` is called when it prints no more."""
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, cwd=directory
            )
        self.pid = self._process.pid
        self._take = take
        self._ended = ended
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def send(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._take(line)
        self._ended()


class Driver:
    """The running driver. Several threads may ask at the same time. BookKeeper's log is in `driver.log`."""

    def __init__(self, command: list[str], made: Path = MADE) -> None:
        self._lock = Lock()
        self._asked: dict[int, Future[dict[str, Any]]] = {}
        self._next = 0
        log = made / "driver.log"
        log.unlink(missing_ok=True)
        self._process = JavaProcess(command, made, log, self._take, self._end)
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def ask(self, command: str, **arguments: object) -> dict[str, Any]:
        """Return the answer to one command, or raise `CommandFailed` with the driver's exception."""
        answer = self.begin(command, **arguments).result(_ANSWER_S)
        if "error" in answer:
            raise CommandFailed(f"{command} {arguments.get('dir', '')}: {answer['error']}")
        found: dict[str, Any] = answer["answer"]
        return found

    def begin(self, command: str, **arguments: object) -> Future[dict[str, Any]]:
        """Send one command, and return a future of its line. Commands are sent in the order of the calls."""
        asked: Future[dict[str, Any]] = Future()
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._asked[number] = asked
            line = json.dumps({"id": number, "command": command, **arguments})
            try:
                self._process.send(line.encode())
            except BrokenPipeError:
                raise CommandFailed("the driver has ended: driver.log may say why") from None
        return asked

    def _take(self, line: bytes) -> None:
        answer = json.loads(line)
        self._asked.pop(answer["id"]).set_result(answer)

    def _end(self) -> None:
        ended = CommandFailed("the driver has ended: driver.log may say why")
        for asked in [*self._asked.values()]:
            asked.set_exception(ended)
