"""Made-up results of laboratory runs: a small one, and a large one with findings."""

from __future__ import annotations

from random import Random

from recovery.crashlab.judge.run_figures import (
    LabNumbers,
    LayerNumbers,
    MutantNumbers,
    Status,
    TimelineEvent,
    ViolationNumbers,
    WorkloadNumbers,
)


class TimelineBuilder:
    """Builds a timeline: the calls of a store with a journal, an entry log, a mark and an index."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.events: list[TimelineEvent] = []
        self.calls = self.syncs = self.operations = 0
        self._asked: list[str] = []

    def call(self, call: str, path: str, size: int = 0, target: str = "", durable: str = "") -> None:
        self.calls += 1
        is_sync = call in {"sync", "datasync", "sync_all"} or bool(durable)
        self.syncs += is_sync
        arrow = f" -> {target}" if target else ""
        bytes_at = f", {size} bytes at {size * 3}" if size else ""
        text = f"{self.calls}, {call} {path}{arrow}{bytes_at}{durable}"
        self.events.append(TimelineEvent(self.calls, call, path, size, is_sync, text))

    def ask(self, what: str) -> None:
        self.operations += 1
        self._asked.append(what)
        self.events.append(TimelineEvent(self.calls, "invoke", "", text=f"invoke {what}"))

    def answer(self) -> None:
        for what in self._asked:
            self.events.append(TimelineEvent(self.calls, "ack", "", text=f"ack {what}"))
        self._asked.clear()

    def found(self) -> None:
        for directory in ("journal", "ledgers", "index.tmp"):
            self.call("mkdir", directory)
        self.call("create", "LOCK")
        self.call("create", "index.tmp/data.mdb")
        self.call("write", "index.tmp/data.mdb", 8192)
        self.call("datasync", "index.tmp/data.mdb")
        self.call("sync", "index.tmp")
        self.call("rename", "index.tmp", target="index")
        self.call("sync", "")

    def journal(self, number: int, batches: int) -> None:
        name = f"journal/{number:016x}.txn"
        self.call("create", name)
        self.call("allocate", name, 1 << 20)
        self.call("write", name, 512)
        self.call("sync", "journal")
        for _ in range(batches):
            for entry in range(self.random.randrange(1, 7)):
                self.ask(f"add 1 {self.operations} b'payload {entry}'")
            self.call("write", name, self.random.choice((512, 1024, 4096, 65536)))
            self.call("datasync", name)
            self.answer()

    def checkpoint(self, number: int) -> None:
        log = f"ledgers/{number:x}.log"
        self.call("create", log)
        for _ in range(self.random.randrange(2, 9)):
            self.call("write", log, self.random.choice((4096, 65536, 1 << 20)))
        self.call("datasync", log)
        self.call("sync", "ledgers")
        self.call("write", "index/data.mdb", 16384)
        self.call("datasync", "index/data.mdb")
        self.call("write", "index/data.mdb", 144, durable=", durable")
        self.call("create", "ledgers/lastMark.tmp")
        self.call("write", "ledgers/lastMark.tmp", 36)
        self.call("datasync", "ledgers/lastMark.tmp")
        self.call("rename", "ledgers/lastMark.tmp", target="ledgers/lastMark")
        self.call("sync", "ledgers")
        if number > 1:
            self.call("unlink", f"journal/{number - 1:016x}.txn")

    def workload(self, name: str, seconds: float = 0.8) -> WorkloadNumbers:
        return WorkloadNumbers(
            name, self.calls, self.operations, self.syncs, seconds, timeline=list(self.events)
        )


def recorded(name: str, calls: int, seed: int = 1) -> WorkloadNumbers:
    """Make a recorded workload of at least this number of calls."""
    recording = TimelineBuilder(seed)
    recording.found()
    number = 0
    while recording.calls < calls:
        number += 1
        recording.journal(number, 6)
        recording.checkpoint(number)
    return recording.workload(name)


def small() -> LabNumbers:
    """A run of ten seconds without findings. The layers that need no privileges are complete."""
    return LabNumbers(
        "mystore",
        seed=1,
        profile="posix-strict",
        seconds=9.4,
        budget_s=10.0,
        jobs=2,
        host={"kernel": "Linux 6.18", "cpu": "2 cores", "python": "3.11.9"},
        layers=[
            LayerNumbers(
                "model",
                seconds=5.2,
                counts={"distinct images": 1482, "raw states": 4210, "crash points": 61},
                states_per_second=212.4,
            ),
            LayerNumbers("kill", seconds=2.1, counts={"kills": 183}, states_per_second=88.0),
            LayerNumbers("errors", seconds=1.9, counts={"error points": 244}, states_per_second=64.3),
            LayerNumbers("nested", Status.NOT_RUN, "nobody asked for it"),
            LayerNumbers("rot", Status.NOT_RUN, "nobody asked for it"),
            LayerNumbers("cut", Status.NOT_RUN, "it needs root, and a kernel with loop devices"),
        ],
        workloads=[recorded("adds", 50)],
    )


def clean() -> LabNumbers:
    """A run of ten minutes in which every layer ran and nothing was found."""
    numbers = large()
    numbers.violations = []
    numbers.layers = [layer for layer in numbers.layers if layer.status is Status.COMPLETE]
    for layer in numbers.layers:
        layer.why = ""
        layer.table.get("*.log", {}).pop("silent", None)
    counts = {"states of depth 2": 10_410, "recoveries cut": 812}
    numbers.layers.append(LayerNumbers("nested", seconds=119.0, counts=counts, states_per_second=92.0))
    numbers.layers.append(_cuts())
    numbers.mutants = [one for one in numbers.mutants if one.found_by or one.proof]
    for workload in numbers.workloads:
        workload.uncovered = []
    return numbers


def large() -> LabNumbers:
    """A run of ten minutes with violations, a layer cut short, one not run, an unseen file and an unfound
    planted bug."""
    return LabNumbers(
        "ledgerstore",
        seed=20240817,
        profile="posix-strict",
        seconds=571.3,
        budget_s=600.0,
        jobs=2,
        host={"kernel": "Linux 6.18.2", "cpu": "2 cores", "filesystem": "tmpfs", "python": "3.11.9"},
        layers=_layers(),
        workloads=[recorded("adds and checkpoints", 520), _not_seen(), recorded("rollover", 2900, 7)],
        violations=_violations(),
        mutants=_mutants(),
    )


def _layers() -> list[LayerNumbers]:
    model = {
        "distinct images": 41_203,
        "raw states": 128_774,
        "crash points": 1_377,
        "exhaustive epochs": 402,
    }
    rot = {
        "journal": {"harmless": 812, "detected": 3104, "repaired": 220},
        "*.log": {"harmless": 402, "detected": 2650, "silent": 3},
        "lastMark": {"harmless": 12, "detected": 88, "repaired": 410},
        "index": {"harmless": 3220, "detected": 120, "repaired": 1904},
    }
    return [
        LayerNumbers("model", seconds=301.0, counts=model, states_per_second=143.7),
        LayerNumbers(
            "kill",
            seconds=118.2,
            counts={"kills": 4_131, "call points": 1_377, "images": 2_801},
            states_per_second=61.2,
        ),
        LayerNumbers(
            "errors", seconds=60.4, counts={"error points": 2_514, "calls": 419}, states_per_second=48.0
        ),
        LayerNumbers(
            "nested",
            Status.CUT_SHORT,
            "its share of the budget was over behind 3,102 of 10,400 images",
            60.0,
            {"states of depth 2": 3_102},
            51.7,
        ),
        LayerNumbers("rot", seconds=31.7, counts={"rot mutants": 12_945}, states_per_second=408.4, table=rot),
        LayerNumbers("cut", Status.NOT_RUN, "it needs root: loop devices cannot be set up here"),
    ]


def _cuts() -> LayerNumbers:
    table = {"ext4": {"cuts": 610, "recovered": 610}, "xfs": {"cuts": 402, "recovered": 402}}
    return LayerNumbers("cut", seconds=58.8, counts={"real cuts": 1012}, states_per_second=17.2, table=table)


def _not_seen() -> WorkloadNumbers:
    workload = recorded("one ledger", 46, 3)
    workload.uncovered = ["index/lock.mdb: mapped for writing, so changes of it are not seen"]
    return workload


def _violations() -> list[ViolationNumbers]:
    return [
        ViolationNumbers(
            "lost-1a2b",
            "LOST",
            "LOST (1, 12) at call 61: was acknowledged, the name of its journal was not durable",
            "model",
            "adds and checkpoints",
            61,
            "posix-strict",
            ("create of journal/0000000000000002.txn",),
            "violations/lost-1a2b",
            14,
        ),
        ViolationNumbers(
            "refused-77",
            "REFUSED",
            "REFUSED at call 36: JournalCorrupt: batch 3 of journal 1 is damaged below what was durable",
            "model",
            "one ledger",
            36,
            "ext4-ordered",
            ("bytes 512-1024 of journal/0000000000000001.txn", "length of ledgers/1.log"),
            "violations/refused-77",
            2,
        ),
        ViolationNumbers(
            "signal-03",
            "SIGNAL",
            "SIGNAL recovery died of SIGBUS: index/data.mdb is shorter than it says",
            "rot",
            "one ledger",
            0,
            "",
            (),
            "violations/signal-03",
            3,
        ),
    ]


_RULES = (
    ("mark-first", "the mark moves only behind what it stands for"),
    ("no-journal-directory-sync", "a journal's name is durable before the first acknowledgement into it"),
    ("no-log-directory-sync", "an entry log's name is durable before the mark moves"),
    ("retry-failed-sync", "behind a failed sync nothing is acknowledged"),
    ("index-in-place", "an index is made beside its place and moved there whole"),
    ("append-behind-torn-tail", "what was recovered is not appended to"),
)


def _mutants() -> list[MutantNumbers]:
    finders = ("model", "kill", "errors", "model", "nested", "model", "rot")
    found = [
        MutantNumbers(f"{name}-{turn}", rule, finders[(turn + index) % 7], seconds=0.4 + turn * 1.7)
        for turn in range(4)
        for index, (name, rule) in enumerate(_RULES)
    ]
    missed = MutantNumbers("no-lock", "a second process is refused before it writes", seconds=120.0)
    proof = "the directory was synced one call before, with the same names in it"
    equivalent = MutantNumbers("second-directory-sync", "ledgers is synced twice", proof=proof, seconds=120.0)
    return [*found, missed, equivalent]
