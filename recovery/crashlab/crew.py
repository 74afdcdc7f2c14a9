"""The workers of one run, as the laboratory sees them: started, given tasks, listened to, ended."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar

import cloudpickle

from recovery.crashlab import preload, wire
from recovery.crashlab.programs import Command
from recovery.crashlab.worker import Failed, Over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType, TracebackType

    from recovery.crashlab.layers.task import Task
    from recovery.crashlab.spec import Spec


_Said = TypeVar("_Said")
_WORKER = "from recovery.crashlab.worker import main; main()"


class LabError(Exception):
    """The laboratory cannot do its work: what it was given is broken, or it is."""


class Crew:
    """So many processes, all with the same specification. For one thread; close it."""

    def __init__(self, spec: Spec, jobs: int) -> None:
        self._stack = ExitStack()
        with self._stack, _by_value(spec):
            self._workers = [self._stack.enter_context(_Worker(spec)) for _ in range(jobs)]
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def run(
        self, tasks: Sequence[Task[_Said]], listen: Callable[[_Said], None], tick: Callable[[], None]
    ) -> list[Over]:
        """One task for each worker, all at once; what they say is heard as it comes."""
        selector, over = selectors.DefaultSelector(), []
        with selector:
            for worker, task in zip(self._workers, tasks, strict=False):
                wire.send(worker.orders, task)
                selector.register(worker.answers, selectors.EVENT_READ, worker)
            while selector.get_map():
                for key, _ in selector.select(0.2):
                    said = self._heard(key.data)
                    if isinstance(said, Over):
                        over.append(said)
                        selector.unregister(key.fileobj)
                    else:
                        listen(said)
                tick()
        return over

    def _heard(self, worker: _Worker) -> Any:
        """What its task says, or the word that it is over."""
        try:
            message = wire.receive(worker.answers)
        except EOFError:
            raise LabError("a worker is gone; its last words are on standard error") from None
        if isinstance(message, Failed):
            raise LabError(f"{message.error}\n{message.where}")
        return message


class _Worker:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            # Not by -m: its values must be of the classes that this process knows.
            [sys.executable, "-P", "-W", "ignore", "-c", _WORKER],
            env=dict(os.environ)
            | {
                "LD_PRELOAD": str(preload.library()),
                "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                "PYTHONHASHSEED": "0",  # two runs make the same calls
                "OPENBLAS_NUM_THREADS": "1",  # numpy's threads would not survive the fork
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            process_group=0,  # an interrupt at the terminal is for us: it is we who end the workers
        )
        assert self._process.stdin
        assert self._process.stdout
        self.orders: IO[bytes] = self._process.stdin
        self.answers: IO[bytes] = self._process.stdout
        wire.send(self.orders, self._spec)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.terminate()  # it kills its child, unmounts its volume and removes its scratch
        self.orders.close()  # the worker ends where its orders end
        self.answers.close()
        self._process.wait()


@contextmanager
def _by_value(spec: Spec) -> Iterator[None]:
    """Functions of modules that a worker could not import go there as code: tests, notebooks, scripts."""
    registered = list(_not_importable(_modules(spec)))
    for module in registered:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in registered:
            cloudpickle.unregister_pickle_by_value(module)


def _modules(spec: Spec) -> set[str]:
    """The names of the modules in which the programs are."""
    programs = [*spec.workloads.values(), spec.recover, *spec.asked, spec.fields]
    functions = [
        getattr(one, "go_on", None) or getattr(one, "verify", None) or getattr(one, "check", one)
        for one in programs
    ]
    names = {
        getattr(one.func if isinstance(one, partial) else one, "__module__", None)
        for one in functions
        if not isinstance(one, Command)
    }
    return {name for name in names if name} - {"__main__"}


def _not_importable(names: set[str]) -> Iterator[ModuleType]:
    """Those that a worker could not import, and what they may have got from beside them."""
    tops = {name.partition(".")[0] for name in names if name in sys.modules and not _is_importable(name)}
    for name, module in sorted(sys.modules.items()):
        if name.partition(".")[0] in tops and not _is_importable(name):
            yield module


def _is_importable(name: str) -> bool:
    """Whether a new process with this one's path would find the same module by its name."""
    file = getattr(sys.modules[name], "__file__", None)
    return file is not None and any(Path(file).is_relative_to(place) for place in _places(name))


def _places(name: str) -> Iterator[Path]:
    """Where the package of that module lies, or the module: as finders say, not as it was loaded here."""
    top = name.partition(".")[0]
    for finder in sys.meta_path:  # those of packages that are installed to be edited too
        path = [place for place in sys.path if place] if finder is PathFinder else None
        with suppress(ImportError, ValueError, AttributeError):
            found = finder.find_spec(top, path)
            if found is not None:
                yield from map(Path, found.submodule_search_locations or [found.origin or ""])
                return
