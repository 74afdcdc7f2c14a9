"""The process of a contender. `contest/contender_process.py` starts it, sends requests, and ends it.

python bench/child.py MODULE:CLASS '{"place": …, "settings": {…}, "one_cpu": false}'

Besides the methods of the class it answers the requests `settle` and `spent` for every contender.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contest.resource_usage import settle, spent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

_FOR_ALL: dict[str, Callable[[], object]] = {"settle": settle, "spent": spent}


def main(make: str, given: str) -> None:
    """Answer requests until the pipe is closed, or until the request `close`."""
    answers = _take_over_output()
    arguments = json.loads(given)
    if arguments["one_cpu"]:
        _use_one_cpu()
    make_one = _class(make)  # import before the first request, because contenders start at the same time
    contender: Any = None
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if contender is None:
                contender = make_one(Path(arguments["place"]), **arguments["settings"])
            answer = _answer(contender, request["do"], request["what"])
            print(json.dumps({"answer": answer}), file=answers, flush=True)
        except Exception:
            print(json.dumps({"failed": traceback.format_exc()}), file=answers, flush=True)
        if request["do"] == "close":
            return
    os._exit(1)  # the parent is gone: end as in a crash


def _take_over_output() -> TextIO:
    """Return a stream for answers. Redirect stdout to stderr, so that output of libraries is no answer."""
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
