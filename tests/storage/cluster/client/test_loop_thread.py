"""A loop in a thread is of one process."""

from __future__ import annotations

import subprocess
import sys

FORK = """
import asyncio, os, warnings
from storage.cluster.client.loop_thread import LoopThread
from storage.cluster.errors import ForkedClient

warnings.simplefilter("ignore")
thread = LoopThread()
child = os.fork()
if not child:
    for call in (lambda: thread.run(asyncio.sleep(0)), lambda: thread.call_soon(print)):
        try:
            call()
        except ForkedClient as error:
            print(error, flush=True)
    thread.stop()
    os._exit(0)
os.waitpid(child, 0)
thread.run(asyncio.sleep(0))
thread.stop()
"""

REFUSAL = "it was opened before a fork; only the process that opened it may use it\n"


def test_a_fork_is_refused_instead_of_waiting_for_ever() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == (REFUSAL * 2, "", 0)
