"""Sequences in histories: a random graph of jobs, what the monitor sees of its runs, and the flows
of their users. `sequence_judge` judges the outcome.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from nextfire.domain.definition import JobDefinition
from nextfire.domain.errors import InvalidInputError
from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.run import Run
from nextfire.testing.kernel import Kernel
from nextfire.usecases.check_definition import Limits
from nextfire.usecases.find_unsent import FindUnsent
from nextfire.usecases.manage_jobs import ManageJobs
from tests.builders import a_definition
from tests.simulation import environment_flows, job_flows, run_flows
from tests.simulation.flow import TENANTS, Flow
from tests.simulation.flows import FLOWS
from tests.simulation.redrives import redrives
from tests.world import BUCKET, POOLS

if TYPE_CHECKING:
    from tests.simulation.history import History

SEQUENCES = 20
"""One history of this many has jobs in sequences, and no others."""
TIMED = 4
"""One history of this many with sequences has jobs with a schedule and parents."""
LIMITED = {1, 7, 9}
"""Of eleven histories with sequences, those whose jobs have setups and deadlines. The seeds of the
others keep their meaning."""
SPOILT = {1, 10}
"""Of thirteen histories with sequences, those in which jobs do not decode for a while."""
_EDGED = {2, 5, 9}
"""Of fourteen histories with sequences, those whose users change single edges, also between
redrives, skips and backfills. Those of remainder 5 have users who redrive, too.
"""
EXITS = [*[0] * 7, 1]
RULES = [
    *["ALL_SUCCEEDED"] * 3,
    "ALL_DONE",
    "ANY_FAILED",
    "ANY_SUCCEEDED",
    "NONE_FAILED",
]
_ROOTS: list[dict[str, Any]] = [
    {"type": "MANUAL", "schedule": None},
    {"type": "MANUAL", "schedule": None},
    {"type": "INTERVAL", "schedule": "PT45S", "maxRuns": 4},
    {"type": "ONCE", "schedule": "2026-05-24T12:00:20Z"},
    {"type": "CRON", "schedule": "* * * * *", "maxRuns": 3},
    {"type": "DELAY", "schedule": "PT15S"},
]
_EDGED_ROOTS = [*_ROOTS[1:], *[_ROOTS[4]] * 4]
"""Most of these can be backfilled."""
_TIMES: list[dict[str, Any]] = [
    {"type": "CRON", "schedule": "* * * * *", "maxRuns": 4},
    {"type": "CRON", "schedule": "*/2 * * * *", "maxRuns": 2},
    {"type": "INTERVAL", "schedule": "PT100S", "maxRuns": 3},
    {"type": "ONCE", "schedule": "2026-05-24T12:01:30Z"},
]
WHICH: list[dict[str, Any]] = [
    {"which": "same"},
    {"which": "all"},
    {"which": "all"},
    {"which": "latest", "withinSec": 20},
    {"which": "latest", "withinSec": 300},
]
_SIZES = [*[3, 4, 5, 6] * 4, 8, 12]
_LARGE = 30


@dataclass(frozen=True, slots=True)
class Seen:
    """A state of a run's record, and when it was stored, by true time."""

    at: datetime
    run: Run


@dataclass(slots=True)
class Sequences:
    """What happens to the sequences of a history. `changes`: whether users change its jobs.
    `timed`: the share of jobs that have a schedule and parents. `limited`: whether jobs have setups
    and deadlines. `parallel`: whether first jobs have `maxParallel`. `edged`: see
    `is_edged`.
    """

    kernel: Kernel
    tenant: str
    changes: bool
    size: int
    timed: float = 0.0
    limited: bool = False
    parallel: bool = False
    edged: bool = False
    seen: dict[JobKey, dict[datetime, dict[RunKey, list[Seen]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    """All states of each run, by its job and its logical time."""
    marked: dict[tuple[RunKey, str], datetime] = field(default_factory=dict)
    """When a parent's mark was first added to the join of a run, by true time."""
    order: list[JobKey] = field(default_factory=list)
    """The jobs of the graph: each after its parents."""

    @staticmethod
    def of(history: History) -> Sequences:
        dice = history.kernel.dice
        # The first tenant may have a quota of jobs.
        limited = history.setting.shares.quotas.of(TENANTS[0]).jobs is not None
        tenant = TENANTS[1] if limited else dice.choice(TENANTS)
        size = _LARGE if dice.random() < 0.04 else dice.choice(_SIZES)
        edged = is_edged(history.seed)
        changes = dice.random() < 0.4 or edged
        # One history of four has such jobs. The seeds of the others keep their meaning.
        timed = 0.0 if history.seed // SEQUENCES % TIMED else 0.4
        limited = history.seed // SEQUENCES % 11 in LIMITED
        parallel = limited or redrives(history.seed)
        return Sequences(history.kernel, tenant, changes, size, timed, limited, parallel, edged)

    def begin(self, history: History) -> None:
        """Create the jobs, without faults."""
        ports, shards = history.wire.ports, history.setting.shards
        manage = ManageJobs(
            ports["jobs"],
            Limits(POOLS, BUCKET, history.setting.shares.quotas),
            FindUnsent(ports["due"], ports["control"], read_shards=shards),
        )
        for number in range(self.size):
            key = JobKey(self.tenant, f"n{number:02}")
            uid, now = history.system.new_uid(), history.kernel.clock.now()
            definition = a_definition(**self.fields(number))
            try:
                manage.register(key, definition, uid=uid, now=now)
            except InvalidInputError:  # its schedule and that of a parent do not meet
                definition = with_latest_edges(definition)
                manage.register(key, definition, uid=uid, now=now)
            history.kernel.log(key.tenant, f"{key.job_id}: {definition.document()}")
            self.order.append(key)
        _run_root(history)

    def fields(self, number: int) -> dict[str, Any]:
        """A random definition of the job *number*, whose parents have lower numbers."""
        dice = self.kernel.dice
        attempts = {"maxAttempts": dice.choice([1, 1, 2, 3]), "initialDelayMs": 1_000}
        fields: dict[str, Any] = {"retryPolicy": attempts, "timeoutSec": 30}
        if dice.random() < 0.25:
            fields["target"] = {"handler": "report", "pool": "batch"}
        if number == 0 or (number < 3 and dice.random() < 0.3):
            most = {"maxParallel": dice.choice([None, 1, 1, 2])} if self.parallel else {}
            return fields | dice.choice(_EDGED_ROOTS if self.edged else _ROOTS) | most
        if dice.random() < 0.2:
            fields["overlap"] = dice.choice(["QUEUE", "SKIP"])
        if dice.random() < 0.05:
            fields["misfire"] = {"relevancyWindowSec": dice.choice([30, 300])}
        edges = self.edges(number)
        if self.timed and dice.random() < self.timed:
            return fields | edges | self.times(edges["after"])
        return fields | edges

    def times(self, after: list[dict[str, Any]]) -> dict[str, Any]:
        """A schedule of a job with the edges *after*, and which runs of its parents it needs."""
        dice = self.kernel.dice
        edges = [edge | dice.choice(WHICH) for edge in after]
        times = dice.choice(_TIMES) | {"after": edges}
        waits = all(edge["which"] == "latest" for edge in edges)
        waits = waits or all(edge.get("setup") for edge in edges if edge["which"] != "latest")
        return times | ({"triggerRule": "ALL_SUCCEEDED"} if waits else {})

    def edges(self, number: int) -> dict[str, Any]:
        """Random parents of the job *number*, and what they mean for it."""
        dice = self.kernel.dice
        most = min(number, 6 if self.size >= _LARGE else 3)
        names = dice.sample(range(number), dice.randint(1, most))
        fields: dict[str, Any] = {
            "type": "AFTER",
            "schedule": None,
            "after": [
                {"job": f"n{name:02}", "delaySec": dice.choice([0, 0, 0, 0, 1, 8, 40])}
                for name in sorted(names)
            ],
            "triggerRule": dice.choice(RULES),
            "joinTimeoutSec": dice.choice([20, 60, 150, 600]),
        }
        if self.limited:
            work = dice.choice(names)
            for edge in fields["after"]:
                edge["setup"] = edge["job"] != f"n{work:02}" and dice.random() < 0.4
            fields["deadlineSec"] = dice.choice([None, None, 10, 30, 90, 300])
        return fields

    # What is seen

    def run_changed(self, key: RunKey, run: Run | None) -> None:
        if run is not None:
            at = self.kernel.clock.now()
            self.seen[key.job][key.scheduled_at][key].append(Seen(at, run))

    def call(self, call: str, args: tuple[Any, ...]) -> None:
        if call == "joins.add":
            run, _, mark, _ = args
            self.marked.setdefault((run, mark.split(":")[0]), self.kernel.clock.now())


def is_edged(seed: int) -> bool:
    """Whether users of the history of *seed* change single edges."""
    return seed // SEQUENCES % 14 in _EDGED


def with_latest_edges(definition: JobDefinition) -> JobDefinition:
    """*definition* with edges that any parents can meet."""
    edges = [{"job": edge.job, "which": "latest", "withinSec": 300} for edge in definition.after]
    rule = {"triggerRule": "ALL_SUCCEEDED"}
    return JobDefinition.model_validate(definition.document() | rule | {"after": edges})


# Flows


def _run_root(history: History) -> None:
    """Start a sequence, from its first job or in its middle."""
    sequences = history.sequences
    assert sequences is not None
    dice = history.kernel.dice
    roots = sequences.order[:2] if dice.random() < 0.9 else sequences.order
    run_flows.run_key_now(history, dice.choice(roots))
    history.patience = timedelta(seconds=dice.choice([0, 0, 3, 20]))


def _wait(history: History) -> None:
    history.patience = timedelta(seconds=history.kernel.dice.choice([5, 20, 70, 200]))


def _change_edges(history: History) -> None:
    """Change parents and rule of a job; sometimes so that they form a cycle."""
    sequences = history.sequences
    assert sequences is not None
    if not sequences.changes:
        return
    dice = history.kernel.dice
    number = dice.randrange(1, sequences.size)
    key = JobKey(sequences.tenant, f"n{number:02}")
    job = history.stores.jobs.items.get(key)
    if job is None or not job.definition.after:
        return
    what = sequences.edges(sequences.size if dice.random() < 0.1 else number)
    job_flows.change_key(history, key, what)


def _delete(history: History) -> None:
    """Delete a job, and perhaps create it again."""
    sequences = history.sequences
    assert sequences is not None
    if not sequences.changes:
        return
    dice = history.kernel.dice
    number = dice.randrange(1, sequences.size)
    key = JobKey(sequences.tenant, f"n{number:02}")
    job_flows.delete_key(history, key)
    if dice.random() < 0.7:
        fields = sequences.fields(number)
        seconds = dice.choice([0, 0.02, 1, 30])
        history.later(timedelta(seconds=seconds), lambda: history.register(key, fields))


def _pause(history: History) -> None:
    sequences = history.sequences
    assert sequences is not None
    if sequences.changes:
        job_flows.pause(history)


_SHARED = {
    "resume": 4,
    "cancel": 5,
    "redrive": 9,
    "redrive a pool": 1,
    "look": 1,
    "kill": 6,
    "kill soon": 12,
    "terminate a worker": 3,
    "clock step": 3,
    "invoke a watcher twice": 1,
    "skip minutes": 1,
    "outage of watchers": 1,
    "outage of workers": 2,
    "black-out": 1,
    "storm": 9,
    "calm": 4,
    "junk message": 1,
    "doubled message": 6,
    "audit": 1,
}
SPOIL = Flow("spoil a link", 12, environment_flows.spoil_job)
SEQUENCE_FLOWS = [
    *(Flow(each.name, _SHARED[each.name], each.begin) for each in FLOWS if each.name in _SHARED),
    Flow("run a sequence", 16, _run_root),
    Flow("wait for sequences", 14, _wait),
    Flow("change edges", 6, _change_edges),
    Flow("delete a link", 3, _delete),
    Flow("pause a link", 4, _pause),
]
