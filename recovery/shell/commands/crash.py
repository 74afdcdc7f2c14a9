"""`ledgerstore crash`: the group of the crash laboratory's commands, and the loader of laboratories."""

from __future__ import annotations

import inspect
import sys
import traceback
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from recovery.shell.exit_codes import CannotDo
from recovery.shell.lazy_group import CommandEntry, LazyGroup

if TYPE_CHECKING:
    from types import ModuleType

    from recovery.crashlab.lab import CrashLab


class Laboratory(LazyGroup):
    """The commands of the crash laboratory."""

    entries: ClassVar = {
        "run": CommandEntry(
            "recovery.shell.commands.crash_run", "Crash a store in every way, and check its promises."
        ),
        "replay": CommandEntry(
            "recovery.shell.commands.crash_replay", "Reproduce a violation: does it still happen?"
        ),
        "report": CommandEntry(
            "recovery.shell.commands.crash_report", "Show the report of a run, and write its HTML page again."
        ),
    }


@click.group(cls=Laboratory)
def command() -> None:
    """Crash a store in every way, and report what it lost.

    The laboratory records the system calls of a workload. Then it simulates a power cut at every call, kills
    the workload, lets calls fail, crashes recoveries, and flips bits. As root it also cuts the power of real
    file systems. After each crash it opens the store again and compares it with what had been acknowledged.
    It tests ledgerstore's own store, or any other store (docs/crashlab.md).

    \b
    Examples:
      ledgerstore crash run --budget 60s
      ledgerstore crash run my_store_lab.py:lab --layers model,kill
      ledgerstore crash replay crash-report/violations/model-1
    """


_DEFAULTS = {"seed": 1, "profile": "posix-strict"}
OWN_LAB = "recovery.proving.lab:ledgerstore_lab"


def load_lab(text: str, seed: int | None, profile: str | None) -> CrashLab:
    """Load the laboratory named by `module:name` or `path/to/file.py:name`, with this seed and profile."""
    from recovery.crashlab.lab import CrashLab

    place, _, name = text.rpartition(":")
    if not place or not name:
        raise click.BadParameter(f"{text!r} is neither module:name nor path/to/file.py:name")
    found = _call_with_arguments(
        text, _attribute(_module(text, place), name), {"seed": seed, "profile": profile}
    )
    if not isinstance(found, CrashLab):
        raise CannotDo(f"{text} is neither a CrashLab nor a function that returns one")
    return found.under(seed=seed, profile=profile)


def _module(text: str, place: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise CannotDo(f"no such file: {place}")
    try:
        return _import_file(Path(place).resolve()) if is_file else _import_by_name(place)
    except Exception as error:
        raise _load_failure(text, error) from error


def _import_by_name(name: str) -> ModuleType:
    # Append the directory, so that no file in it can replace an installed module.
    _search_in(Path.cwd())
    return import_module(name)


def _import_file(file: Path) -> ModuleType:
    """Import the file under its own name if worker processes can find it by that name."""
    _search_in(file.parent)
    known = PathFinder.find_spec(file.stem, sys.path)
    is_found = known is not None and known.origin == str(file) and file.stem not in sys.modules
    spec = spec_from_file_location(file.stem if is_found else f"crash_lab_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _search_in(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def _attribute(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        raise CannotDo(f"{module.__file__ or module.__name__} has no attribute {name!r}")
    return getattr(module, name)


def _call_with_arguments(text: str, found: Any, given: dict[str, Any]) -> Any:
    """Call `found` if it is a function, with seed and profile if it has such parameters."""
    if not inspect.isroutine(found):
        return found
    arguments = {}
    for name, parameter in inspect.signature(found).parameters.items():
        if name in given and (given[name] is not None or parameter.default is parameter.empty):
            arguments[name] = _DEFAULTS[name] if given[name] is None else given[name]
    try:
        return found(**arguments)
    except Exception as error:
        raise _load_failure(text, error) from error


def _load_failure(text: str, error: Exception) -> CannotDo:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return CannotDo(f"{text}: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})")
