"""A durable job queue: a job that was added runs at least once, in spite of crashes.

    python docs/examples/job_queue.py DIRECTORY      add some jobs, run them with four threads

Jobs are the entries of one ledger, and the ids of finished jobs are the entries of another. Both are divided
into segments of some thousand jobs, and a segment whose jobs are all done is deleted, so that its space can
be reclaimed. Ledgers have numbers: segment n has its jobs in ledger 2n and the ids of finished jobs in ledger
2n + 1.

A worker that crashes between running a job and `done` runs it again after the next opening. If that does
harm, give each job an id of your own, and check it in the job.
"""

from __future__ import annotations

import struct
import sys
import threading
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import ledgerstore

SEGMENT_SIZE = 10_000
_JOB_ID = struct.Struct(">q")


@dataclass(frozen=True)
class Job:
    """One job, and its place in the store."""

    segment: int
    entry_id: int
    payload: bytes


class JobQueue:
    """The jobs of one store, which must hold nothing else. Threads may share it."""

    def __init__(self, store: ledgerstore.Store, segment_size: int = SEGMENT_SIZE) -> None:
        self._store = store
        self._segment_size = segment_size
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._unfinished: Counter[int] = Counter()
        """By segment: the number of jobs that are not done, including those that are being added."""
        segments = sorted({ledger_id // 2 for ledger_id in store.ledgers()})
        self._current = segments[-1] if segments else 0
        last = self._jobs(self._current).last_entry_id
        self._room = segment_size if last is None else segment_size - (last + 1)
        """The number of jobs that still fit into the current segment."""
        for segment in segments:
            self._load(segment)
            self._delete_if_finished(segment)

    def put(self, payload: bytes) -> None:
        """Add a job; it is durable when this returns."""
        with self._lock:
            before = self._current
            if self._room <= 0:
                self._current, self._room = before + 1, self._segment_size
            segment = self._current
            self._room -= 1
            # Counted before it is added, so that the segment is not deleted in between.
            self._unfinished[segment] += 1
        if segment != before:
            self._delete_if_finished(before)
        try:
            # Outside the lock, so that threads share a sync.
            entry_id = self._jobs(segment).append(payload)
        except BaseException:  # Ctrl-C too, because this job is never taken and would keep its segment
            with self._lock:
                self._unfinished[segment] -= 1
            raise
        with self._lock:
            self._waiting.append(Job(segment, entry_id, payload))

    def take(self) -> Job | None:
        """Return the next job, or None if none is waiting. Call `done` when it has run."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def done(self, job: Job) -> None:
        """Record that a job has run. When this has returned it never runs again."""
        self._finished(job.segment).append(_JOB_ID.pack(job.entry_id))
        with self._lock:
            self._unfinished[job.segment] -= 1
        self._delete_if_finished(job.segment)

    def __len__(self) -> int:
        """Return the number of waiting jobs."""
        return len(self._waiting)

    def _load(self, segment: int) -> None:
        jobs, finished = self._jobs(segment), self._finished(segment)
        done = {_JOB_ID.unpack(payload)[0] for payload in finished.payloads()} if finished.exists else set()
        for entry in jobs.entries() if jobs.exists else ():
            if entry.entry_id not in done:
                self._waiting.append(Job(segment, entry.entry_id, entry.payload))
                self._unfinished[segment] += 1

    def _delete_if_finished(self, segment: int) -> None:
        with self._lock:
            if segment == self._current or self._unfinished[segment]:
                return
        # Jobs first: after a crash in between, finished ids without jobs do no harm.
        for ledger in (self._jobs(segment), self._finished(segment)):
            with suppress(ledgerstore.NoSuchLedger):
                ledger.delete()

    def _jobs(self, segment: int) -> ledgerstore.Ledger:
        return self._store.ledger(2 * segment)

    def _finished(self, segment: int) -> ledgerstore.Ledger:
        return self._store.ledger(2 * segment + 1)


def main(directory: str) -> None:
    with ledgerstore.open(directory) as store:
        queue = JobQueue(store)
        print(f"{len(queue)} jobs left from the last run")
        for number in range(100):
            queue.put(b"job %d" % number)

        def work(_: int) -> int:
            count = 0
            while (job := queue.take()) is not None:
                queue.done(job)  # after the job's own work
                count += 1
            return count

        with ThreadPoolExecutor(4) as workers:
            print(f"{sum(workers.map(work, range(4)))} jobs done")


if __name__ == "__main__":
    match sys.argv[1:]:
        case [directory]:
            main(directory)
        case _:
            sys.exit(__doc__)
