"""Equivalent mutants, which change no behaviour, each with the reason. They are not tried.

The file, the function and the change identify an entry, independent of the line. An entry that
matches no mutant is an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tests.mutation.source import Mutant


@dataclass(frozen=True, slots=True)
class Equivalent:
    """`change`: as in the table, or its beginning followed by `…`."""

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
        "layers/nextfire/targets/http/outcome.py",
        "_without_credentials",
        "the same for all: {MASK} in…",
        "It is a constant.",
    ),
    Equivalent(
        "layers/nextfire/adapters/aws/lean/json_client.py",
        "JsonClient._attempt",
        "one round of while True",
        "Each iteration returns, raises or continues.",
    ),
    Equivalent(
        "layers/nextfire/adapters/scripts/keeper.py",
        "drain",
        "one round of while os.read…",
        "Data left in the pipe wakes the keeper again immediately.",
    ),
    Equivalent(
        "layers/nextfire/adapters/scripts/kept_program.py",
        "in_memory",
        "one round of while view",
        "A write to a file in memory is complete, up to 2 GiB.",
    ),
    *(
        Equivalent(
            "layers/nextfire/client/contexts.py",
            "_write",
            f"{kind} {{os.getpid()}} in…",
            "A file of this name that is left is removed; a lock excludes other processes.",
        )
        for kind in ("the same for all:", "without")
    ),
    Equivalent(
        "layers/nextfire/adapters/sqlite/run_reads.py",
        "_OTHERWISE",
        "True for run.state is RunState.DEAD",
        "Each query also asks for `attention_at`, which only DEAD records have.",
    ),
    Equivalent(
        "layers/nextfire/domain/audit.py",
        "is_done",
        "False for job.state is not JobState.ACTIVE in …",
        "The store completes only ACTIVE jobs; the check saves a write.",
    ),
    Equivalent(
        "layers/nextfire/domain/due_decisions.py",
        "_decide_fire",
        "True for job.uid != entry.uid in job is not None…",
        "An entry due before the job's creation belongs to another job.",
    ),
    Equivalent(
        "layers/nextfire/domain/due_decisions.py",
        "_decide_fire",
        "True for each.version > entry.version",
        "The oldest versions are removed first: all remaining ones are newer.",
    ),
    Equivalent(
        "layers/nextfire/domain/decisions.py",
        "decide_pickup",
        "True for run.state.ended in run.state.ended and over",
        "Only an ended run has an end time.",
    ),
    Equivalent(
        "layers/nextfire/domain/job.py",
        "Job.is_over",
        "True for e.version <= past.version in …",
        "Occurrences of a newer version are due after the end of this one.",
    ),
    Equivalent(
        "layers/nextfire/domain/run.py",
        "Run.skip_requested",
        "True for self.state is RunState.SKIPPED in …",
        "A scheduled run with a request is the record of a skip, which never changes.",
    ),
    Equivalent(
        "layers/nextfire/domain/stretch.py",
        "_cron_stretch",
        "False for len(latest) > 1 or since == after",
        "The last two are the same however far it looks back; it only takes longer.",
    ),
    Equivalent(
        "layers/nextfire/targets/http/outcome.py",
        "_sent",
        "the same for all: {query} in …",
        "The query is recorded as `?…`, which has no letter and no digit to replace.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit_visit.py",
        "JobVisits.visit",
        "first self._revive…",
        "Each ignores what the other finds; the excess is left for the next audit.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit_visit.py",
        "JobVisits.visit",
        "first if over and self.jobs.complete(job, now)…",
        "A job with stuck runs is not done; runs of a done job are not resent.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit_visit.py",
        "JobVisits._hand_over",
        "first self._put(join_ends…",
        "Until the run has a record, each audit stores both entries again.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit_snapshot.py",
        "SnapshotReader._read_shard",
        "True for stored.entry.uid in uids",
        "Entries are looked up by uid; the check saves memory.",
    ),
    Equivalent(
        "layers/nextfire/usecases/audit_snapshot.py",
        "SnapshotReader._read_held",
        "True for entry.uid in uids in …",
        "Entries are looked up by uid; the check saves memory.",
    ),
    Equivalent(
        "layers/nextfire/usecases/cover_missed.py",
        "cover_missed",
        "True for record is not None and record.key.scheduled_at > first (number 2)",
        "A record exists, as a latest one does; if it is that of *first*, the result is not used.",
    ),
    Equivalent(
        "layers/nextfire/usecases/without_attempt.py",
        "WithoutAttempt._skip",
        "True for run.state is RunState.PENDING in …",
        "The store skips only requested runs that are waiting; the check saves a write.",
    ),
    Equivalent(
        "layers/nextfire/usecases/continue_backfill.py",
        "ContinueBackfill.step",
        "first for at in batch…",
        "Without a batch there is nothing to begin.",
    ),
    Equivalent(
        "layers/nextfire/usecases/manage_backfills.py",
        "ManageBackfills.begin",
        "False for self._jobs.update…",
        "The next iteration finds the backfill by its id and returns it.",
    ),
    Equivalent(
        "layers/nextfire/usecases/dispatch/reader.py",
        "BucketReader._move_cursor",
        "True for moved and…",
        "Only a former holder is refused, and it no longer dispatches.",
    ),
    Equivalent(
        "layers/nextfire/usecases/dispatch/gates.py",
        "OverlapGate._answered",
        "first self._waiting.postpone(undecided…",
        "The two lists have no entry in common.",
    ),
    Equivalent(
        "layers/nextfire/usecases/dispatch/gates.py",
        "OverlapGate._answered",
        "first self._waiting.postpone(unknown…",
        "The two lists have no entry in common.",
    ),
    Equivalent(
        "layers/nextfire/usecases/dispatch/gates.py",
        "TenantQuotaGate.admit",
        "first self._wait(over…",
        "The two lists have no entry in common.",
    ),
    Equivalent(
        "layers/nextfire/usecases/timed_runs.py",
        "TimedRuns.begin",
        "first self.joins.add(key, 0, time_mark(ends_at)…",
        "A redelivered message stores the end again, whether or not the mark is there.",
    ),
    Equivalent(
        "layers/nextfire/usecases/timed_runs.py",
        "TimedRuns.parent_ended",
        "True for child.state is JobState.ACTIVE in …",
        "The store completes only ACTIVE jobs; the check saves a write.",
    ),
    Equivalent(
        "layers/nextfire/usecases/timed_runs.py",
        "TimedRuns._another_is_left",
        "False for left == (edge, ended.key.scheduled_at) in …",
        "The record of that run has ended; about ln N of N runs would read it.",
    ),
    Equivalent(
        "layers/nextfire/usecases/timed_runs.py",
        "TimedRuns._act",
        "first self.start.start(…",
        "`start` does nothing for a run that was skipped.",
    ),
    Equivalent(
        "layers/nextfire/usecases/dispatch/tick.py",
        "Dispatch._carry_out",
        "first followed += self._cover…",
        "They are independent, and both are done before anything is deleted.",
    ),
    Equivalent(
        "layers/nextfire/usecases/record_outcome.py",
        "RecordOutcome.settle",
        "first if job.state is JobState.ACTIVE…",
        "A redelivery completes the rest in either order.",
    ),
    Equivalent(
        "layers/nextfire/usecases/record_outcome.py",
        "RecordOutcome.settle",
        "True for job.state is JobState.ACTIVE in …",
        "The store completes only ACTIVE jobs; the check saves a write.",
    ),
    *(
        Equivalent(
            "layers/nextfire/adapters/packages/installer.py",
            "_aside",
            f"{change} {{path.name}} in …",
            "The other part is unique; this one is for people who inspect the folder.",
        )
        for change in ("without", "the same for all:")
    ),
    *(
        Equivalent(path, where, f"{change} {{{part}}} in …", reason)
        for path, where, part, reason in (
            (
                "functions/embedded/parts.py",
                "_report",
                "file.name",
                "Any other name of the folder does: one process writes the file.",
            ),
            (
                "layers/nextfire/client/contexts.py",
                "_write",
                "file.name",
                "The other part is unique; this one is for people who inspect the folder.",
            ),
            (
                "layers/nextfire/adapters/dynamodb/change_stamp.py",
                "<module>",
                "CHANGED_BY",
                "A placeholder in an expression: any that the expression does not have.",
            ),
            (
                "layers/nextfire/adapters/scripts/confinement.py",
                "_unshare",
                "flags",
                "A text for people.",
            ),
            (
                "layers/nextfire/client/exchange_log.py",
                "_without_keys",
                "HIDDEN",
                "A text for people, in place of a secret.",
            ),
        )
        for change in ("without", "the same for all:")
    ),
    Equivalent(
        "layers/nextfire/domain/references.py",
        "check_references",
        "the same for all: {re.escape(allowed)} in …",
        "It has no letters and no digits.",
    ),
)


def split_equivalents(
    mutants: Iterable[Mutant], known: Sequence[Equivalent] = EQUIVALENTS
) -> tuple[list[Mutant], list[Mutant], list[Equivalent]]:
    """Split into the mutants to try, the equivalent ones, and the entries that match no mutant."""
    to_try: list[Mutant] = []
    equivalent: list[Mutant] = []
    unused = list(known)
    for mutant in mutants:
        alike = [each for each in known if each.is_like(mutant)]
        (equivalent if alike else to_try).append(mutant)
        unused = [each for each in unused if each not in alike]
    return to_try, equivalent, unused
