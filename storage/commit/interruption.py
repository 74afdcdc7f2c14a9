"""Tells an exception of a signal handler from a failure, where one of them has stopped a commit.

Python calls signal handlers in the main thread, between two instructions of whatever runs there. An exception
that a handler raises there is an *interruption*: nothing has failed, and what was interrupted is repeated.
Everything else is a *failure*, after which nothing may be repeated: a second sync that succeeds would prove
nothing about bytes that the kernel has dropped. In doubt it is a failure, because a store that stops loses
nothing.

An exception is a failure

* if it, or an exception that was being handled when it was raised, is an `OSError` with an errno that came
  through code of ours: the disk has failed, and perhaps a handler raised while that was being handled;
* if one of those is an `AssertionError`, a `MemoryError` or a `RecursionError`;
* if only functions of ours are in its traceback, because then no handler was called. A `KeyboardInterrupt` is
  the exception to this: Python's own handler of SIGINT is no Python function and leaves no trace.

Anything else is an interruption: a function of the user is in its traceback, and our code calls no function
of a user in a commit before the answer. An interrupted step is repeated once only, in a thread where no
handler runs. What stops it there is a failure, whatever it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_FAILURES = (AssertionError, MemoryError, RecursionError)
_OURS = frozenset({"storage", "recovery", "ledgerstore"})


class NeedsThread(Exception):
    """The rest of the commit is to be done in a thread that no signal handler interrupts.

    Raised in the main thread, before a step that cannot be repeated from its middle, such as the beginning of
    a new journal.
    """


def is_interruption(error: BaseException) -> bool:
    """Return whether a signal handler has raised the exception, and nothing has failed before that.

    The traceback begins in the function of ours that has caught it.
    """
    one: BaseException | None = error
    seen: set[int] = set()
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        is_failure = isinstance(one, _FAILURES) or (isinstance(one, OSError) and one.errno is not None)
        if is_failure and any(map(_is_ours, _frames(one))):
            return False
        one = one.__context__
    return isinstance(error, KeyboardInterrupt) or not all(map(_is_ours, _frames(error)))


def _frames(error: BaseException) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _OURS
