"""ledgerstore's storage: the files of a bookie, and the parts that read and write them.

`storage` holds words (entries, positions, errors), codecs (bytes to words and back, pure), the file
layer, and one part for each thing on disk. It never looks at `recovery`.
"""

from storage._version import __version__
from storage.entry import DigestType, Entry
from storage.errors import CorruptionError, InvalidEntry, InvalidFormat, StoreError, StoreLocked
from storage.outcome import Damaged, EndOfData, Flaw, Torn
from storage.position import EntryLocation, JournalPosition, LogPosition

__all__ = [
    "CorruptionError",
    "Damaged",
    "DigestType",
    "EndOfData",
    "Entry",
    "EntryLocation",
    "Flaw",
    "InvalidEntry",
    "InvalidFormat",
    "JournalPosition",
    "LogPosition",
    "StoreError",
    "StoreLocked",
    "Torn",
    "__version__",
]
