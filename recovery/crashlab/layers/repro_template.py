"""Opens a copy of the image beside this file, and prints what the store shows.

    python repro.py

The exit code is 1 if something acknowledged is missing or the store does not open, and 0 if everything is
there. This script needs the store itself, and cloudpickle if the store is opened by a function, but nothing
of the laboratory that wrote it.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CAUSE = "THE CAUSE"
COMMAND: list[str] | None = None
PATH: list[str] = []
"""Where the store was imported from."""
RECOVER = b""
MUST: list[tuple[object, object]] = []
"""Acknowledged keys that were not changed since, and their values."""


def shown(root: Path) -> dict[object, object]:
    """Return what the store shows. The process ends here if the store does not open."""
    if COMMAND:
        words = [word.replace("{root}", str(root)) for word in COMMAND]
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE)
        return {tuple(map(plain, entry[:-1])): plain(entry[-1]) for entry in json.loads(done.stdout or b"[]")}
    import cloudpickle

    sys.path += PATH
    answer = cloudpickle.loads(RECOVER)(root)
    entries = getattr(answer, "entries", answer)
    return {key if isinstance(key, tuple) else (key,): value for key, value in dict(entries or {}).items()}


def plain(value: object) -> object:
    """Return a value as it was before it was written as JSON."""
    return bytes.fromhex(value["hex"]) if isinstance(value, dict) else value


def look(root: Path) -> None:
    """Check the store. Called in a process of its own, because the store may die of a signal."""
    entries = shown(root)
    missing = [key for key, value in MUST if entries.get(key) != value]
    print(f"{len(entries)} entries are shown, {len(MUST)} must be")
    for key in missing:
        print(f"  {key}: {entries.get(key, 'missing')!r}")
    sys.exit(1 if missing else 0)


def main() -> int:
    print(CAUSE)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "root"
        shutil.copytree(Path(__file__).parent / "image", root)
        process = multiprocessing.get_context("fork").Process(target=look, args=(root,))
        process.start()
        process.join(60)
        if process.exitcode is None:
            process.kill()
            print("it does not end")
        elif process.exitcode < 0:
            print(f"it died of signal {-process.exitcode}")
        return 1 if process.exitcode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
