"""Start bookies by forking one process that has imported everything, because imports are most of a start.

Requests are lines on stdin, with fields separated by tabs. Each has one answer, in their order:

    start LOG ARGUMENT…    started PID      `ledgerstore ARGUMENT…`, its output in the file LOG
    signal PID NUMBER      sent PID         after SIGSTOP, when the process has stopped

    ended PID CODE                          comes when a process has ended, with its code or minus its signal

At the end of stdin every process is killed.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import sys
from importlib import import_module
from typing import NoReturn

_PARTS = ("config", "deleted_ledgers", "http", "identity", "membership", "metrics", "server", "status")
_IMPORTS = (
    "concurrent.futures.thread",
    "encodings.idna",
    "recovery.opening.open_async_store",
    "recovery.directory.layout",
    "recovery.shell.main",
    "recovery.shell.commands.bookie",
    "storage.bookkeeper_conf",
    *(f"storage.cluster.bookie.{name}" for name in _PARTS),
    "storage.cluster.tls",
    "storage.cluster.zookeeper.client",
)


def main() -> None:
    for name in _IMPORTS:
        import_module(name)
    gc.freeze()  # so that a collection in a fork does not copy the pages of what is imported
    live: dict[int, int] = {}  # the pid for each pidfd
    unread = b""
    with selectors.DefaultSelector() as selector:
        selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fd in live:
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    _report_end(live.pop(key.fd))
                    continue
                found = os.read(key.fd, 1 << 16)
                if not found:
                    for pid in live.values():
                        os.kill(pid, signal.SIGKILL)
                    return
                *lines, unread = (unread + found).split(b"\n")
                for line in lines:
                    started = _obey(line.decode().split("\t"), set(live.values()))
                    if started is not None:
                        live[pidfd := os.pidfd_open(started)] = started
                        selector.register(pidfd, selectors.EVENT_READ)


def _obey(words: list[str], live: set[int]) -> int | None:
    """Obey a request; return the process id if a process was started."""
    if words[0] == "start":
        pid = os.fork()
        if not pid:
            _run(words[1], words[2:])
        _say(f"started\t{pid}")
        return pid
    pid, number = int(words[1]), int(words[2])
    if pid in live:
        os.kill(pid, number)
        if number == signal.SIGSTOP:
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    _say(f"sent\t{pid}")
    return None


def _run(log: str, arguments: list[str]) -> NoReturn:
    from recovery.shell.main import main as command

    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.closerange(3, 1 << 10)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["ledgerstore", *arguments]
        command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def _report_end(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    _say(f"ended\t{pid}\t{os.waitstatus_to_exitcode(status)}")


def _say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    main()
