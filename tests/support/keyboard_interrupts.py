"""Raise a Ctrl-C at every place where one can arrive: after each call, and where a function begins or
resumes."""

from __future__ import annotations

import dis
import sys
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, ModuleType


@cache
def interruptible(code: CodeType) -> frozenset[int]:
    """Return the bytecode offsets at which the interpreter checks for signals."""
    plain = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    return frozenset(after.offset for one, after in pairwise(plain) if one.opname == "CALL")


def interrupted(act: Callable[[], object], number: int, *modules: ModuleType) -> bool:
    """Call the function with a Ctrl-C at that place of the modules' code. Return whether the place was
    reached."""
    places, files = 0, {one.__file__ for one in modules}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal places
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        # The interpreter reports the start and the resumption of a function by a call event, not by an opcode
        # event.
        if event == "call" or (event == "opcode" and frame.f_lasti in interruptible(frame.f_code)):
            places += 1
            if places == number:
                sys.settrace(None)
                frame.f_trace = None
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False
