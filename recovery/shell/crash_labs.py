"""The laboratory that a command was asked for by name: ours, one of a module, one of a file."""

from __future__ import annotations

import inspect
import sys
import traceback
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recovery.shell.exits import CannotDo

if TYPE_CHECKING:
    from types import ModuleType

    from recovery.crashlab.lab import CrashLab

_DEFAULTS = {"seed": 1, "profile": "posix-strict"}
OURS = "recovery.proving.lab:ledgerstore_lab"


def lab(text: str, seed: int | None, profile: str | None) -> CrashLab:
    """The laboratory behind `module:name` or `path/to/file.py:name`, with that seed and profile."""
    from recovery.crashlab.lab import CrashLab

    place, _, name = text.rpartition(":")
    if not place or not name:
        raise click.BadParameter(f"{text!r} is neither module:name nor path/to/file.py:name")
    found = _made(text, _attribute(_module(text, place), name), {"seed": seed, "profile": profile})
    if not isinstance(found, CrashLab):
        raise CannotDo(f"{text} is neither a CrashLab nor a function that returns one")
    return found.under(seed=seed, profile=profile)


def _module(text: str, place: str) -> ModuleType:
    is_file = place.endswith(".py")
    if is_file and not Path(place).is_file():
        raise CannotDo(f"no such file: {place}")
    try:
        return _of_file(Path(place).resolve()) if is_file else _of_name(place)
    except Exception as error:
        raise _broken(text, error) from error


def _of_name(name: str) -> ModuleType:
    # Behind everything that is installed: no file that lies about here may pass for a part of ours.
    _look_in(Path.cwd())
    return import_module(name)


def _of_file(file: Path) -> ModuleType:
    """The file as a module of its own name where workers can find it by that, else as one of another."""
    _look_in(file.parent)
    known = PathFinder.find_spec(file.stem, sys.path)
    is_found = known is not None and known.origin == str(file) and file.stem not in sys.modules
    spec = spec_from_file_location(file.stem if is_found else f"crash_lab_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _look_in(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.append(str(directory))


def _attribute(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        raise CannotDo(f"{module.__file__ or module.__name__} has no {name!r}")
    return getattr(module, name)


def _made(text: str, found: Any, given: dict[str, Any]) -> Any:
    """What a function returns; it is told the seed and the profile if it takes them."""
    if not inspect.isroutine(found):
        return found
    wanted = {}
    for name, parameter in inspect.signature(found).parameters.items():
        if name in given and (given[name] is not None or parameter.default is parameter.empty):
            wanted[name] = _DEFAULTS[name] if given[name] is None else given[name]
    try:
        return found(**wanted)
    except Exception as error:
        raise _broken(text, error) from error


def _broken(text: str, error: Exception) -> CannotDo:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return CannotDo(f"{text}: {type(error).__name__}: {error} ({last.filename}, line {last.lineno})")
