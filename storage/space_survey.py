"""Measures what takes the space of a store, for `Store.space` and for `ledgerstore du`.

The sizes come from the file system and from the index, and the live bytes of the entry logs from
`storage.gc.usage`. Nothing is counted while entries are added.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from storage.disk import filenames
from storage.disk.filenames import FileKind
from storage.space import IndexSpace, LogSpace, StoreSpace
from storage.stats import FileStats

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from storage.disk.files import Directory
    from storage.gc.usage import UsageSurvey
    from storage.index.port import Index

_CURRENT = (
    (filenames.JOURNAL_DIRECTORY, filenames.CURRENT),
    (filenames.LEDGER_DIRECTORY, filenames.CURRENT),
)

_WITH_FIGURES = frozenset(
    {
        FileKind.JOURNAL,
        FileKind.ENTRY_LOG,
        FileKind.INDEX,
        FileKind.INDEX_DAMAGED,
        FileKind.LEDGER_ROWS,
        FileKind.RESERVE,
    }
)
"""The kinds of files that have figures of their own."""


def measure(root: Directory, index: Index, survey: UsageSurvey, tombstones: int) -> StoreSpace:
    """Return what takes the space of the store in that directory now."""
    mark = index.state().mark
    files = [file for outer, inner in _CURRENT for file in _files(root.directory(outer).directory(inner))]

    def of(kind: FileKind) -> dict[str, int]:
        return {name: size for found, name, size in files if found is kind}

    journals, logs = of(FileKind.JOURNAL), of(FileKind.ENTRY_LOG)
    index_bytes = sum(of(FileKind.INDEX).values())
    used = min(index.used_bytes(), index_bytes)
    held = [size for name, size in _linked(root) if name not in journals and name not in logs]
    return StoreSpace(
        journals=_stats(journals.values()),
        journal_backups=_stats(size for name, size in journals.items() if _id(name) < mark.journal_id),
        entry_logs=_log_space(logs, survey),
        index=IndexSpace(index_bytes, used, index_bytes - used),
        metadata_log=sum(of(FileKind.LEDGER_ROWS).values()),
        tombstones=tombstones,
        quarantine=_stats([*_sizes_below(root, filenames.QUARANTINE), *of(FileKind.INDEX_DAMAGED).values()]),
        audit_links=_stats(held),
        reserve=sum(of(FileKind.RESERVE).values()),
        others=_stats(size for kind, _, size in files if kind not in _WITH_FIGURES),
    )


def _log_space(logs: Mapping[str, int], survey: UsageSurvey) -> LogSpace:
    live = unknown = 0
    for name, size in logs.items():
        usage = None
        # A log that a collection removes at this moment is gone when it is opened.
        with suppress(FileNotFoundError):
            usage = survey.known_usage_of(_id(name))
        if usage is None:
            unknown += size
        else:
            live += usage.live
    total = sum(logs.values())
    return LogSpace(len(logs), total, live, total - live - unknown, unknown)


def _id(name: str) -> int:
    number = filenames.parse(name).number
    assert number is not None, "journals and logs have ids"
    return number


def _stats(sizes: Iterable[int]) -> FileStats:
    known = list(sizes)
    return FileStats(len(known), sum(known))


def _files(directory: Directory) -> Iterator[tuple[FileKind, str, int]]:
    """Yield kind, name and size of the files in a directory. An index may be a directory."""
    for name in directory.names():
        kind = filenames.parse(name).kind
        if kind in (FileKind.INDEX, FileKind.INDEX_DAMAGED, FileKind.INDEX_DRAFT):
            for number, size in enumerate(_sizes_below(directory, name)):
                yield kind, f"{name}/{number}", size
            continue
        with suppress(FileNotFoundError, IsADirectoryError), directory.open(name) as file:
            yield kind, name, file.size()


def _sizes_below(directory: Directory, name: str) -> Iterator[int]:
    """Yield the sizes of the files in the directory of that name, or of the file, if there is one."""
    inner = directory.directory(name)
    try:
        names = inner.names()
    except FileNotFoundError:
        return
    except NotADirectoryError:
        with suppress(FileNotFoundError), directory.open(name) as file:
            yield file.size()
        return
    for one in names:
        # Not the lock file, because closing any descriptor of it releases the locks that LMDB holds in it.
        if one != filenames.INDEX_LOCK:
            yield from _sizes_below(inner, one)


def _linked(root: Directory) -> Iterator[tuple[str, int]]:
    """Yield the name and the size of each file to which an audit holds a hard link."""
    links = root.directory(filenames.AUDIT_LINKS)
    with suppress(FileNotFoundError):
        for audit in links.names():
            inner = links.directory(audit)
            with suppress(FileNotFoundError, NotADirectoryError):
                for name in inner.names():
                    if name != filenames.LOCK:
                        yield from ((name, size) for size in _sizes_below(inner, name))
