"""Toy stores for the laboratory's commands, in a file as a user of the laboratory would write it.

A store has one file for each key. `sound` keeps its promises except under rot; `careless` syncs nothing."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

from recovery.crashlab import CrashLab, Ctx

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 2
HEARD = "TOY_LAB_HEARD"
"""The environment variable with the path of a pipe, to which each hanging process reports."""


def put(root: Path, name: str, data: bytes) -> None:
    draft = root / f".{name}"
    with draft.open("wb", buffering=0) as file:
        while data:
            data = data[file.write(data) or 0 :]
        os.fsync(file.fileno())
    draft.rename(root / name)
    directory = os.open(root, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


def sound(root: Path, ctx: Ctx) -> None:
    for key in range(KEYS):
        with ctx.doing("add", str(key), b"tea"):
            put(root, str(key), b"tea")


def careless(root: Path, ctx: Ctx) -> None:
    for key in range(KEYS):
        with ctx.doing("add", str(key), b"tea"):
            (root / str(key)).write_bytes(b"tea")


def failing(root: Path, ctx: Ctx) -> None:
    raise OSError("out of tea")


def hanging(root: Path, ctx: Ctx) -> None:
    with suppress(OSError):
        pipe = os.open(os.environ[HEARD], os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, f"{os.getppid()} {os.getpid()}\n".encode())
    while True:
        signal.pause()


def chatting(root: Path, ctx: Ctx) -> None:
    print("more tea?")
    sound(root, ctx)


def recover(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if not path.name.startswith(".")}


lab = CrashLab(sound, recover, name="toy")
bad = CrashLab(careless, recover, name="careless toy")
fails = CrashLab(failing, recover)
hangs = CrashLab(hanging, recover)
chats = CrashLab(chatting, recover)


def seeded(seed: int) -> CrashLab:
    return CrashLab(sound, recover, name=f"toy of seed {seed}", seed=seed)
