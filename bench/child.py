"""The process of a contender: `player.py` starts it, asks, and ends it.

python bench/child.py MODULE:CLASS '{"place": …, "settings": {…}, "one_cpu": false}'

Beside the methods of the class it answers `settle` and `spent` for every contender.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spending import settle, spent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_FOR_ALL: dict[str, Callable[[], object]] = {"settle": settle, "spent": spent}


def main(make: str, given: str) -> None:
    """Answers until nobody asks any more, or until it is asked to close."""
    answers = _take_over_output()
    said = json.loads(given)
    if said["one_cpu"]:
        _use_one_cpu()
    make_one = _class(make)  # before it is asked: contenders of a scenario start side by side
    contender: Any = None
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            if contender is None:
                contender = make_one(Path(said["place"]), **said["settings"])
            answer = _answer(contender, asked["do"], asked["what"])
            print(json.dumps({"answer": answer}), file=answers, flush=True)
        except Exception:
            print(json.dumps({"failed": traceback.format_exc()}), file=answers, flush=True)
        if asked["do"] == "close":
            return
    os._exit(1)  # whoever has asked is gone: as after a crash


def _take_over_output() -> TextIO:
    """Answers alone go to the one who asks: whatever a library prints goes where errors go."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _use_one_cpu() -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def _class(make: str) -> Any:
    module, _, name = make.partition(":")
    return getattr(import_module(module), name)


def _answer(contender: object, do: str, what: dict[str, object]) -> object:
    if do in _FOR_ALL:
        return _FOR_ALL[do]()
    return getattr(contender, do)(**what)


if __name__ == "__main__":
    main(*sys.argv[1:])
