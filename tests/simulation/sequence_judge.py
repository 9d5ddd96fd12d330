"""Judges the runs of sequences by what their parents' runs did, with none of the product's code for
rules and joins: only sets of the states in which the runs of parents had ended by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from nextfire.domain.ids import JobKey, RunKey
from nextfire.domain.job import Job
from nextfire.domain.occurrences import JobState
from nextfire.domain.run import Run, RunState
from tests.simulation.awaited import AwaitedBySequences, finished
from tests.simulation.deadline_judge import CLOCKS, DECIDING, DeadlineJudge
from tests.simulation.handed_over import HandedOver
from tests.simulation.redriven import AGAIN, awaits_parents
from tests.simulation.sequence_reasons import (
    BY_EXECUTORS,
    BY_RULE,
    BY_SETUP,
    BY_TIMEOUT,
    BY_WATCHERS,
    parents_in,
    skipped_by_rule,
)
from tests.simulation.sequence_rules import ENDED, S, may_run, may_skip
from tests.simulation.sequences import Seen, Sequences
from tests.simulation.sequences_under_way import SequencesUnderWay

if TYPE_CHECKING:
    from tests.evidence import Stored


@dataclass(frozen=True)
class SequenceJudge:
    """Judges a history that is at rest. `ever`: all stored versions of each job."""

    sequences: Sequences
    ever: Mapping[tuple[JobKey, str], list[Stored]]
    runs: Mapping[RunKey, Run]
    marks: Callable[[RunKey], Collection[str]]
    """The marks of the join of a run."""

    def wrong(self) -> Iterator[str]:
        """What must not be: first what is missing, which explains the rest."""
        yield from self._handed_over.wrong()
        unchanged = [*self._handed_over.unchanged()]
        under_way = SequencesUnderWay(self.sequences, unchanged)
        for each in unchanged:
            yield from under_way.too_many(each)
        for job, by_time in [*self.sequences.seen.items()]:
            for at, runs in [*by_time.items()]:
                yield from self._doubled(job, at, runs)
                for key, seen in runs.items():
                    yield from self._judge(key, seen)

    # One record

    def _doubled(self, job: JobKey, at: datetime, runs: Collection[RunKey]) -> Iterator[str]:
        """A job that was created again may have had a run as each of the two."""
        if len({key.uid for key in runs}) < len(runs):
            yield f"{job.job_id} has {len(runs)} records of {at}"

    # Each change of a record

    def _judge(self, key: RunKey, seen: list[Seen]) -> Iterator[str]:
        name, was, asked = key.execution_id, None, False
        if seen[0].run.on_request or not any(
            job.definition.after for job in self._before(key, seen[-1].at)
        ):
            return
        for each in seen:
            run, state = each.run, each.run.state
            reopened = was is not None and was.state is RunState.SKIPPED
            asked = run.reason == AGAIN if state is RunState.PENDING else asked
            if asked and not state.ended:
                pass  # a user redrove it, whatever its parents did
            elif state is RunState.RUNNING and (was is None or not was.attempts):
                yield from self._ran(key, each, name)
                if was is None:
                    yield from self._deadlines.started(key, each, self._in_force(key, each.at))
            elif state is RunState.PENDING and reopened:
                yield from self._ran(key, each, f"{name} (reopened)", starts=False)
                assert was is not None
                # A watcher recorded it as missed after its time had been handed over, or when it
                # was an occurrence of a schedule that the job no longer has.
                begun = any(mark.startswith("@time") for mark in self.marks(key))
                kinds = {job.definition.is_timed_join for job in self._before(key, each.at)}
                missed = (begun or len(kinds) > 1) and BY_WATCHERS.search(was.reason or "")
                if not (skipped_by_rule(was) or awaits_parents(was) or missed):
                    yield f"{name} was SKIPPED ({was.reason}), and was reopened"
            elif state is RunState.SKIPPED and not (run.attempts or awaits_parents(run)):
                yield from self._skipped(key, each)
            was = run
        if was is not None and skipped_by_rule(was):
            yield from self._handed_over.stays_skipped(was)

    def _ran(self, key: RunKey, seen: Seen, name: str, *, starts: bool = True) -> Iterator[str]:
        """A run starts, or is to start after a delay, after the ends that its rule needs. An
        executor decided it by any version of the job: dispatches can wait for long.
        """
        stored = self.ever.get((key.job, key.uid), [])
        replaced_at = [each.written_at for each in stored[1:]] + [seen.at]
        by = [
            (each.job, min(until + DECIDING, seen.at))
            for each, until in zip(stored, replaced_at, strict=True)
            if each.written_at <= seen.at
        ]
        at = seen.at if starts else None
        if not any(self._may_run(job, key, until, at) for job, until in by):
            ends = [self._ends(job, key, seen.at) for job in self._in_force(key, seen.at)]
            yield f"{name} started, although its parents had ended {ends}"

    def _may_run(self, job: Job, key: RunKey, until: datetime, at: datetime | None) -> bool:
        """Whether it may start at *at*, by what was known *until* then."""
        if self._timed.awaited(job, key) is None:
            return True
        ends = self._ends(job, key, until)
        if not may_run(job.definition.trigger_rule, ends, self._setups(job, key)):
            return False
        if job.definition.is_timed_join and key.scheduled_at > until + CLOCKS:
            return False
        ready = [
            min(ended) + self._least_delay(key, each.edge.job, until)
            for each in self._timed.awaited(job, key) or []
            if (ended := finished(each.ends))
        ]
        # Of these rules one end is enough: the delays of the other parents do not matter.
        least = min if job.definition.trigger_rule in {"ANY_FAILED", "ANY_SUCCEEDED"} else max
        return at is None or not ready or at >= least(ready) - CLOCKS

    def _least_delay(self, key: RunKey, parent: str, until: datetime) -> timedelta:
        """Of the versions up to *until*: an end is marked with the delay that its edge had then."""
        edges = (job.definition.edge_from(parent) for job in self._before(key, until))
        return min(edge.delay for edge in edges if edge is not None)

    def _skipped(self, key: RunKey, seen: Seen) -> Iterator[str]:
        reason, jobs = seen.run.reason or "", self._in_force(key, seen.at)
        missed = seen.run.covered > 1 or (BY_WATCHERS.search(reason) and seen.run.pool is None)
        if missed or seen.run.skip_requested:
            return
        if reason.startswith(BY_EXECUTORS):
            if seen.run.pool is None:
                yield f"{key.execution_id}: {reason}, but not by an executor"
            yield from self._deadlines.skipped(key, seen, jobs)
        elif reason == "its job was paused":
            before = [
                each.job.state for each in self.ever[key.job, key.uid] if each.written_at <= seen.at
            ]
            if JobState.PAUSED not in before:
                yield f"{key.execution_id} is SKIPPED: {reason}, but it was not"
        elif reason.endswith("no runs of its parents"):
            others = [self._timed.awaited(job, key) for job in jobs]
            if not any(each is None or all(waits.edge.setup for waits in each) for each in others):
                yield f"{key.execution_id} is SKIPPED: {reason}, but it awaits some"
        elif reason.endswith("ANY_FAILED: no parent failed"):
            skips = (
                may_skip("ANY_FAILED", self._ends(job, key, seen.at), self._setups(job, key))
                for job in jobs
            )
            if not any(skips):
                yield f"{key.execution_id} is SKIPPED: {reason}, but one did"
        elif not any(self._explains(job, key, seen, reason) for job in jobs):
            ends = [self._ends(job, key, seen.at) for job in jobs]
            yield f"{key.execution_id} is SKIPPED: {reason}, but its parents ended {ends}"

    def _explains(self, job: Job, key: RunKey, seen: Seen, reason: str) -> bool:
        """Whether *reason* names the right parents, by the definition of *job*."""
        if self._timed.awaited(job, key) is None:
            return True
        definition, ends = job.definition, self._ends(job, key, seen.at)
        setups, by_setup = self._setups(job, key), BY_SETUP.fullmatch(reason)
        by_rule, by_timeout = BY_RULE.fullmatch(reason), BY_TIMEOUT.fullmatch(reason)
        if by_setup is not None:
            return all(
                name in setups and by_setup[2] in ends[name] for name in parents_in(by_setup[1])
            )
        if by_rule is not None:
            rule, names, state = by_rule.groups()
            return (
                rule == definition.trigger_rule
                and may_skip(rule, ends, setups)
                and not {*parents_in(names)} & setups
                and all(state in ends.get(name, ()) for name in parents_in(names))
                and not (rule == "ALL_SUCCEEDED" and state == S)
            )
        if by_timeout is None:
            return False
        waited, missing = timedelta(seconds=int(by_timeout[1])), parents_in(by_timeout[3])
        if by_timeout[2] not in {None, str(definition.deadline_sec)}:
            return False
        late = any(
            self._deadlines.is_late(each, key, seen.at) for each in self._before(key, seen.at)
        )
        if definition.is_timed_join:
            before = self._ends(job, key, seen.at - DECIDING, certain=True)
            if not all(each.definition.is_timed_join for each in self._before(key, seen.at)):
                return True  # it had another kind of join
            in_time = seen.at >= key.scheduled_at + definition.join_timeout - CLOCKS
            return (in_time or late) and all(
                name in before and not before[name] for name in missing
            )
        if any(each.definition.is_timed_join for each in self._before(key, seen.at)):
            return True  # it had another kind of join
        # The first end set when the join ends, by the version of the job at that time.
        versions = self._before(key, seen.at)
        least = min(each.definition.join_timeout for each in versions)
        first = [
            at
            for each in versions
            for edge in each.definition.after
            for at in finished(self._timed.ended(edge.job, key.scheduled_at))
        ]
        return (
            waited == definition.join_timeout
            and bool(first)
            and (late or seen.at >= min(first) + least - CLOCKS)
            and not any(self._marked(key, name, seen.at) for name in missing)
            and all(name in ends for name in missing)
        )

    def _marked(self, key: RunKey, name: str, at: datetime) -> bool:
        marked_at = self.sequences.marked.get((key, name))
        return marked_at is not None and marked_at < at - CLOCKS

    # What was known

    def _setups(self, job: Job, key: RunKey) -> set[str]:
        """The runs that must have succeeded."""
        return {each.name for each in self._timed.awaited(job, key) or [] if each.edge.setup}

    def _ends(
        self, job: Job, key: RunKey, at: datetime, *, certain: bool = False
    ) -> dict[str, set[str]]:
        """The states in which the awaited runs had ended by *at*; *certain*: without successes that
        are perhaps not recent enough for `latest`, and without runs that were redriven since.
        """
        return {
            each.name: {
                ENDED[end.run.state]
                for end in each.ends
                if end.at <= at
                and not (
                    certain and (each.is_old(end, key.scheduled_at) or self._was_redriven(end, at))
                )
            }
            for each in self._timed.awaited(job, key) or []
        }

    def _was_redriven(self, end: Seen, at: datetime) -> bool:
        """Whether the run of *end* had started again when those who decided by *at* read it."""
        key = end.run.key
        states = self.sequences.seen[key.job][key.scheduled_at][key]
        return any(
            end.at < each.at <= at + DECIDING and not each.run.state.ended for each in states
        )

    @cached_property
    def _handed_over(self) -> HandedOver:
        return HandedOver(self.sequences, self.ever, self.runs, self.marks)

    @cached_property
    def _deadlines(self) -> DeadlineJudge:
        return DeadlineJudge(self.sequences, self.ever)

    @cached_property
    def _timed(self) -> AwaitedBySequences:
        never_paused = {
            job.key: job
            for job in self._handed_over.unchanged()
            if JobState.PAUSED not in {each.job.state for each in self.ever[job.key, job.uid]}
        }
        return AwaitedBySequences(self.sequences, never_paused)

    def _in_force(self, key: RunKey, at: datetime) -> list[Job]:
        """The versions of the job of *key* that an executor that decided by *at* may have read."""
        stored = self.ever.get((key.job, key.uid), [])
        former = [each.job for each in stored if each.written_at <= at - DECIDING][-1:]
        return former + [each.job for each in stored if at - DECIDING < each.written_at <= at]

    def _before(self, key: RunKey, at: datetime) -> list[Job]:
        return [each.job for each in self.ever.get((key.job, key.uid), []) if each.written_at <= at]
