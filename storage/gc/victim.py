"""The live records of an entry log that is compacted, read and verified in slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from storage.checkpoint.reclaimer import SliceChunk, locations_of
from storage.disk import filenames
from storage.entry import verify
from storage.entry.position import LENGTH_WORD_SIZE
from storage.entry.read_result import Damaged, Flaw
from storage.entry.record_chunk import COUNT_MAX, SIZE_MAX, RecordChunk
from storage.entry.verify import EntryBounds
from storage.gc.log_walk import walk
from storage.runtime.worker import yield_gil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from storage.disk.files import Directory
    from storage.entry.digest import Digester
    from storage.gc.log_walk import LogBlock, RecordRun
    from storage.index.port import IndexReader

SLICE_SIZE_MAX = 8 << 20
"""Bytes of the records of a slice."""

SLICE_COUNT_MAX = 8192
"""Entries of a slice: the commit of a slice makes the deletes of other threads wait."""


class Victim:
    """One log that is compacted. For one thread."""

    def __init__(
        self,
        directory: Directory,
        index: IndexReader,
        digester_of: Callable[[int], Digester | None],
        checkpoints: Callable[[], int],
        log_id: int,
        end: int,
    ) -> None:
        """`index` has no locations of deleted ledgers. `checkpoints` returns how many have ended."""
        self.bytes_read = 0
        self._directory = directory
        self._index = index
        self._digester_of = digester_of
        self._checkpoints = checkpoints
        self._log_id = log_id
        self._end = end

    def chunks(self) -> Iterator[list[SliceChunk] | Damaged]:
        """Yield the live records of one block after the other; `Damaged` ends them.

        A live record is verified: its framing, its ids and its digest, if the ledger has one that can be
        verified without a password. The bytes stay as they are.
        """
        with self._directory.open(filenames.entry_log(self._log_id)) as file:
            for block in walk(file, self._log_id, self._end):
                if isinstance(block, Damaged):
                    yield block
                    return
                self.bytes_read += len(block.data)
                found: list[SliceChunk] = []
                for run in block.runs:
                    chunks = self._live(block, run)
                    if isinstance(chunks, Damaged):
                        yield chunks
                        return
                    found += chunks
                    yield_gil()
                yield found

    def _live(self, block: LogBlock, run: RecordRun) -> list[SliceChunk] | Damaged:
        """Return the records of the run that the index points at."""
        base = self._log_id << 32 | LENGTH_WORD_SIZE
        looked_up_at = self._checkpoints()  # first, because a checkpoint during the look-up outdates it
        found = locations_of(self._index, run.ledger_id, run.ids)
        places = [base + position for position in run.positions]
        numbers: Sequence[int] = range(len(places))
        if found != places:
            numbers = [at for at in numbers if found[at] == places[at]]
        digester = self._digester_of(run.ledger_id)
        if numbers and digester is not None and digester.verifies:
            bounds = _bounds(block, run, numbers)
            if wrong := verify.mismatches(block.data, bounds, digester):
                words = f"ledger {run.ledger_id}, entry {run.ids[numbers[wrong[0]]]}"
                return Damaged(run.positions[numbers[wrong[0]]], Flaw.DIGEST, words)
        return [
            SliceChunk(_chunk(block, run, some), places[some[0] : some[-1] + 1], looked_up_at)
            for some in _stretches(run, numbers)
        ]


def _bounds(block: LogBlock, run: RecordRun, numbers: Sequence[int]) -> EntryBounds:
    """Return where these records lie in the block."""
    positions, sizes = run.positions, run.sizes
    if isinstance(numbers, range) and isinstance(positions, range):
        first, end, size = positions[0] - block.offset, run.end - block.offset, positions.step
        return EntryBounds(range(first + LENGTH_WORD_SIZE, end, size), range(first + size, end + 1, size))
    starts = [positions[at] - block.offset + LENGTH_WORD_SIZE for at in numbers]
    return EntryBounds(starts, [positions[at] - block.offset + sizes[at] for at in numbers])


def _stretches(run: RecordRun, numbers: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split the numbers of records into those of chunks, whose records follow each other."""
    if isinstance(numbers, range) and isinstance(run.positions, range):
        count = max(1, min(COUNT_MAX, SIZE_MAX // run.positions.step))
        yield from (numbers[begin : begin + count] for begin in range(0, len(numbers), count))
        return
    begin, size = 0, 0
    for at, number in enumerate(numbers):
        is_next = at > begin and number == numbers[at - 1] + 1
        follows = is_next and run.positions[number] == run.positions[number - 1] + run.sizes[number - 1]
        if at > begin and not (follows and at - begin < COUNT_MAX and size + run.sizes[number] <= SIZE_MAX):
            yield numbers[begin:at]
            begin, size = at, 0
        size += run.sizes[number]
    if begin < len(numbers):
        yield numbers[begin:]


def _chunk(block: LogBlock, run: RecordRun, numbers: Sequence[int]) -> RecordChunk:
    """Return these records, which follow each other, in one chunk."""
    first, last = numbers[0], numbers[-1]
    start, end = run.positions[first], run.positions[last] + run.sizes[last]
    part = slice(first, last + 1)
    # A copy, because the rest of the block would stay in memory with it.
    data = bytes(block.data[start - block.offset : end - block.offset])
    return RecordChunk(run.ledger_id, run.ids[part], run.sizes[part], end - start, [data])
