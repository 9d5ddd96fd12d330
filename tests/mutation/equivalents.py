"""Mutants that change nothing, each with the reason. They are not tried.

An entry is told by the file, the function and what is changed, whatever the line; one that no
mutant is like any more is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.mutation.source import Mutant


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`change`: as the table shows it, or the head of it before a `…`."""

    path: str
    where: str
    change: str
    reason: str

    def is_like(self, mutant: Mutant) -> bool:
        if (mutant.path, mutant.where) != (self.path, self.where):
            return False
        head, more, _ = self.change.partition("…")
        return mutant.change.startswith(head) if more else mutant.change == self.change


EQUIVALENTS: tuple[Equivalent, ...] = (
    Equivalent(
        "layers/nextfire/adapters/keeper.py",
        "drain",
        "one round of while os.read…",
        "What is left in the pipe wakes the keeper again at once.",
    ),
    Equivalent(
        "layers/nextfire/adapters/kept_program.py",
        "in_memory",
        "one round of while view",
        "A file in memory takes all at once, up to 2 GiB.",
    ),
    Equivalent(
        "layers/nextfire/adapters/run_store.py",
        "DynamoDbRunStore.cancel",
        "False for run.state is RunState.CANCELLED",
        "Only the run is answered, not whose write it was.",
    ),
    Equivalent(
        "layers/nextfire/adapters/run_store.py",
        "DynamoDbRunStore.cancel",
        "True for run.state is RunState.CANCELLED",
        "Only the run is answered, not whose write it was.",
    ),
    Equivalent(
        "layers/nextfire/adapters/run_store.py",
        "DynamoDbRunStore.stop",
        "False for there.state is RunState.CANCELLED",
        "That the write is ours ends the loop here, and a CANCELLED run ends it, too.",
    ),
    Equivalent(
        "layers/nextfire/domain/audit.py",
        "is_done",
        "False for job.state is not JobState.ACTIVE in …",
        "The store completes an ACTIVE job only; it spares a write.",
    ),
    Equivalent(
        "layers/nextfire/domain/due_decisions.py",
        "_decide_fire",
        "True for job.uid != entry.uid in job is not None…",
        "What is due by a job's creation is of another.",
    ),
    Equivalent(
        "layers/nextfire/domain/due_decisions.py",
        "_decide_fire",
        "True for each.version > entry.version",
        "Versions are forgotten the oldest first: all that are left are newer.",
    ),
    Equivalent(
        "layers/nextfire/domain/decisions.py",
        "decide_pickup",
        "True for run.state.ended in run.state.ended and over",
        "Only what has ended has an instant at which it did.",
    ),
    Equivalent(
        "layers/nextfire/domain/job.py",
        "Job.is_over",
        "True for e.version <= past.version in …",
        "What a newer version has is due after the end of this one.",
    ),
    Equivalent(
        "layers/nextfire/domain/run.py",
        "Run.skip_requested",
        "True for self.state is RunState.SKIPPED in …",
        "What bears a request and is of the schedule is the record of a skip, which never changes.",
    ),
    Equivalent(
        "layers/nextfire/domain/schedule.py",
        "_cron_stretch",
        "False for len(latest) > 1 or since == after",
        "The last two are the same, however far it looks back; it takes longer.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit.py",
        "AuditJobs._visit",
        "first self._revive…",
        "What one finds the other does not look at; what is too much is left for the next audit.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit.py",
        "AuditJobs._visit",
        "first if over and self._jobs.complete(job, now)…",
        "What has stuck runs is not done; of what is done none is sent again.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit.py",
        "AuditJobs._read_shard",
        "True for stored.entry.uid in uids",
        "Entries are asked for by uid; it spares memory.",
    ),
    Equivalent(
        "layers/nextfire/usecases/cover_missed.py",
        "cover_missed",
        "True for there is not None and there.key.scheduled_at > first (number 2)",
        "There is one, as there is a latest; where it is of *first*, what is reckoned is not used.",
    ),
    Equivalent(
        "layers/nextfire/usecases/execute_run.py",
        "ExecuteRun._skip",
        "True for run.state is RunState.PENDING and run.on_request",
        "The store passes over what is asked for and waits, and nothing else; it spares a write.",
    ),
    Equivalent(
        "layers/nextfire/usecases/execute_run.py",
        "ExecuteRun._skip",
        "True for run.state is RunState.PENDING in …",
        "The store passes over what is asked for and waits, and nothing else; it spares a write.",
    ),
    Equivalent(
        "layers/nextfire/usecases/continue_backfill.py",
        "ContinueBackfill.step",
        "first for at in batch…",
        "Where there is no batch there is nothing to begin.",
    ),
    Equivalent(
        "layers/nextfire/usecases/manage_backfills.py",
        "ManageBackfills.begin",
        "False for self._jobs.update…",
        "The next round finds the backfill by its id, and answers it.",
    ),
    Equivalent(
        "layers/nextfire/usecases/dispatch/reader.py",
        "BucketReader._move_cursor",
        "True for moved and…",
        "It is refused to a former holder only, who dispatches no more.",
    ),
    Equivalent(
        "layers/nextfire/usecases/dispatch/tick.py",
        "Dispatch._carry_out",
        "first followed += self._cover…",
        "Neither looks at the other, and both are done before anything is deleted.",
    ),
    Equivalent(
        "layers/nextfire/usecases/execute_run.py",
        "ExecuteRun._with_job",
        "False for decision.action is ClaimAction.CANCEL",
        "The store refuses DEAD where a cancel was asked for, and then it ends as here.",
    ),
    Equivalent(
        "layers/nextfire/usecases/execute_run.py",
        "ExecuteRun._settle",
        "first if job.state is JobState.ACTIVE…",
        "A redelivery does what is left, whichever came first.",
    ),
    Equivalent(
        "layers/nextfire/usecases/execute_run.py",
        "ExecuteRun._settle",
        "True for job.state is JobState.ACTIVE in …",
        "The store completes an ACTIVE job only; it spares a write.",
    ),
    *(
        Equivalent(
            "layers/nextfire/adapters/packages.py",
            "_aside",
            f"{change} {{path.name}} in …",
            "The other part is unlike all others; this one is for people who look there.",
        )
        for change in ("without", "the same for all:")
    ),
)


def sorted_out(
    mutants: Iterable[Mutant], known: Sequence[Equivalent] = EQUIVALENTS
) -> tuple[list[Mutant], list[Mutant], list[Equivalent]]:
    """The mutants to try, the equivalent ones, and the entries that no mutant is like."""
    to_try: list[Mutant] = []
    equivalent: list[Mutant] = []
    unused = list(known)
    for mutant in mutants:
        alike = [each for each in known if each.is_like(mutant)]
        (equivalent if alike else to_try).append(mutant)
        unused = [each for each in unused if each not in alike]
    return to_try, equivalent, unused
