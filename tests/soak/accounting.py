"""Whether every occurrence is accounted for, and what was done twice: from the records that the API
shows, from the marks that scripts left, and from what should have been. Nothing here runs nextfire.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise
from typing import Any

from tests.soak.marks import Mark
from tests.soak.oracle import History, Occurrence, instant, occurrences

Record = dict[str, Any]

_ENDED = frozenset({"SUCCEEDED", "CANCELLED", "SKIPPED", "DEAD"})
_MISSED = timedelta(seconds=60)
_DISPATCH_TAKES = timedelta(seconds=5)
"""From the watcher's decision to the message's instant."""


class Wrong(StrEnum):
    """What an anomaly is counted as. OTHER is neither lost nor done twice."""

    LOST = "LOST"
    DOUBLE = "DOUBLE"
    OTHER = "OTHER"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """Something that should not be. `count`: of how many occurrences or attempts."""

    wrong: Wrong
    what: str
    job: str
    about: str
    record: Record | None = None
    count: int = 1


@dataclass(slots=True)
class Row:
    """The figures of a job type. `runs`: records of occurrences that a script began for."""

    occurrences: int = 0
    runs: int = 0
    attempts: int = 0
    skipped: int = 0
    cancelled: int = 0
    dead: int = 0
    lost: int = 0
    double_effects: int = 0
    repeated: int = 0
    handed_back: int = 0

    def add(self, other: Row) -> None:
        for name in Row.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of the run of an occurrence: from when it was due (in a pause: from the resumption). `apart`:
    without the time that the stack was stopped.
    """

    execution_id: str
    dispatched: timedelta | None
    started: timedelta
    dispatched_apart: timedelta | None
    started_apart: timedelta


@dataclass(frozen=True, slots=True)
class Loss:
    """When a worker was killed or stopped; `worker`: its name on the records, None: a Lambda's."""

    at: datetime
    worker: str | None


@dataclass(slots=True)
class Found:
    """The account of all jobs. `repeated_without_kill`: attempts whose worker was lost though
    nobody killed one.
    """

    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    anomalies: list[Anomaly] = field(default_factory=list)
    lateness: list[Lateness] = field(default_factory=list)
    repeated_without_kill: int = 0

    @property
    def total(self) -> Row:
        total = Row()
        for row in self.rows.values():
            total.add(row)
        return total

    @property
    def others(self) -> int:
        return sum(a.count for a in self.anomalies if a.wrong is Wrong.OTHER)

    def check_state(self, history: History, state: str) -> None:
        """Whether a job whose occurrences are all over is shown as such."""
        wanted = "CANCELLED" if history.deleted_at else "PAUSED" if history.paused else "COMPLETED"
        if state != wanted:
            job = f"{history.tenant}/{history.job_id}"
            self.anomalies.append(Anomaly(Wrong.OTHER, f"is {state}, not {wanted}", job, ""))


Stops = Sequence[tuple[datetime, datetime]]


def account(
    histories: Iterable[History],
    records: Mapping[tuple[str, str], Sequence[Record]],
    marks: Sequence[Mark],
    *,
    until: datetime,
    stops: Stops = (),
    losses: Sequence[Loss] = (),
) -> Found:
    """Account for all that was due up to *until*.

    Args:
        histories: The jobs.
        records: What the API lists of each, by tenant and job id.
        marks: What scripts left.
        until: The system has been at rest at this instant.
        stops: When the whole stack was stopped, and when it was back.
        losses: The workers that were killed.
    """
    found = Found()
    by_job: dict[tuple[str, str], list[Mark]] = defaultdict(list)
    for mark in marks:
        by_job[mark.tenant, mark.execution_id.partition(".")[0]].append(mark)
    for history in histories:
        key = history.tenant, history.job_id
        _Job(
            history, records.get(key, ()), by_job.pop(key, []), until, stops, losses, found
        ).judge()
    for (tenant, job_id), left in by_job.items():
        for mark in left:
            found.anomalies.append(
                Anomaly(Wrong.DOUBLE, "no such job", f"{tenant}/{job_id}", mark.execution_id)
            )
    return found


class _Job:
    """The account of one job."""

    def __init__(
        self,
        history: History,
        records: Sequence[Record],
        marks: Sequence[Mark],
        until: datetime,
        stops: Stops,
        losses: Sequence[Loss],
        found: Found,
    ) -> None:
        self.history = history
        self.records = sorted(records, key=lambda record: str(record["executionId"]))
        self.by_id = {record["executionId"]: record for record in self.records}
        self.marks: dict[str, list[Mark]] = defaultdict(list)
        for mark in sorted(marks, key=lambda mark: mark.begun_at):
            self.marks[mark.execution_id].append(mark)
        self.due = occurrences(history, until)
        self.stops = stops
        self.losses = losses
        self.found = found
        self.row = found.rows[history.document["type"]]
        self.misfire = history.document.get("misfire", {})
        self.overlap = history.document.get("overlap", "ALLOW")

    def judge(self) -> None:
        self._judge_coverage()
        for record in self.records:
            self.row.cancelled += record["state"] == "CANCELLED"
            self.row.dead += record["state"] == "DEAD"
            self._judge_record(record)
        for execution_id, marks in self.marks.items():
            self.row.runs += 1
            self.row.attempts += len(marks)
            if execution_id in self.by_id:
                self._judge_effects(self.by_id[execution_id], marks)
            else:
                self._double("an effect without a record", execution_id, None)
        if self.overlap != "ALLOW":
            self._judge_exclusion()

    def _judge_coverage(self) -> None:
        """Each occurrence has one record or lies in one range; each record stands for what was
        due.
        """
        self.row.occurrences += sum(each.required for each in self.due.values())
        covers: dict[datetime, list[Record]] = defaultdict(list)
        for record in self.records:
            stood = self._stood_for(record)
            if not stood:
                self._double("no such occurrence", record["executionId"], record)
                continue
            told = record.get("range", {}).get("count", 1)
            if told != len(stood):
                self._lost(f"a range of {len(stood)} counts {told}", "", record)
            if record["state"] == "SKIPPED":
                self.row.skipped += len(stood)
            for each in stood:
                covers[each.at].append(record)
                if record["state"] == "SKIPPED" and not self._may_be_skipped(each, record, stood):
                    self._lost("skipped without a right", str(each.at), record)
        for at, each in self.due.items():
            if not covers[at]:
                if each.required:
                    self._lost("no record", str(at), None)
            elif len(covers[at]) > 1:
                ids = " and ".join(record["executionId"] for record in covers[at])
                self._double("two records of an occurrence", ids, covers[at][-1])

    def _stood_for(self, record: Record) -> list[Occurrence]:
        first = instant(record["scheduledAt"])
        if first not in self.due:
            return []
        last = instant(record.get("range", {}).get("to", record["scheduledAt"]))
        span = self.due[first].span
        return [o for at, o in self.due.items() if first <= at <= last and o.span is span]

    def _may_be_skipped(self, it: Occurrence, record: Record, stood: list[Occurrence]) -> bool:
        """Whether a policy gives the right to skip *it* at the instant when that was decided."""
        decided_at = instant(record["finishedAt"])
        if it.span.paused:
            return True
        window = self.misfire.get("relevancyWindowSec")
        if window is not None and decided_at - it.at > timedelta(seconds=window):
            return True
        if self.overlap == "REPLACE" and self._is_newer_due(it.at, decided_at):
            return True
        if self.overlap == "SKIP" and self._had_not_ended(it.at):
            return True
        # With RUN_LATEST all that is due goes with the first, if that is missed, but the latest.
        judged = stood[0] if self._policy == "RUN_LATEST" else it
        if not judged.in_pause and decided_at - judged.at <= _MISSED:
            return False
        superseded = it.next_at is not None and it.next_at <= decided_at
        return self._policy == "SKIP" or (self._policy == "RUN_LATEST" and superseded)

    @property
    def _policy(self) -> str:
        return str(self.misfire.get("policy", "RUN_LATEST"))

    def _had_not_ended(self, at: datetime) -> bool:
        """Whether an earlier run, one that was not skipped, had not ended at *at*."""
        return any(
            record.get("attempts")
            and instant(record["scheduledAt"]) < at
            and ("finishedAt" not in record or instant(record["finishedAt"]) > at)
            for record in self.records
        )

    def _judge_record(self, record: Record) -> None:
        execution_id, state = record["executionId"], record["state"]
        attempts = record.get("attempts", [])
        for attempt, following in pairwise([*attempts, None]):
            outcome = attempt.get("outcome")
            self.row.handed_back += outcome == "HANDED_BACK"
            if outcome == "WORKER_LOST" and following:
                self.row.repeated += 1
                self.found.repeated_without_kill += not self._was_killed(attempt)
        if state not in _ENDED:
            self._lost("not ended at rest", execution_id, record)
            return
        if state == "SUCCEEDED" and not self._has_effect(record):
            self._lost("SUCCEEDED without its script's end", execution_id, record)
        if state == "CANCELLED" and not self._may_be_cancelled(record):
            self._lost("cancelled without a right", execution_id, record)
        most = self.history.document.get("retryPolicy", {}).get("maxAttempts", 3)
        tries = record.get("attempt", 0) - record.get("attemptsBeforeRedrive", 0)
        if state == "DEAD" and tries < most:
            self._lost(f"dead after {tries} of {most} attempts", execution_id, record)
        if tries > most:
            self._double(f"{tries} attempts of {most}", execution_id, record)
        asked = self.history.redrives.get(execution_id, [])
        if "attemptsBeforeRedrive" in record and not asked:
            self._double("redriven, but nobody asked", execution_id, record)
        it = self.due.get(instant(record["scheduledAt"]))
        if it is not None and attempts and not self._may_run(it, record):
            self._double("ran without a right", execution_id, record)
        if it is not None and attempts:
            self._tell_lateness(it, record)

    def _has_effect(self, record: Record) -> bool:
        number = record["attempts"][-1]["number"]
        marks = self.marks.get(record["executionId"], [])
        return any(mark.attempt == number and mark.code == 0 for mark in marks)

    def _may_be_cancelled(self, record: Record) -> bool:
        if record["executionId"] in self.history.cancels:
            return True
        ended_at = instant(record["finishedAt"])
        if self.history.deleted_at is not None and self.history.deleted_at <= ended_at:
            return True
        newer = self._is_newer_due(instant(record["scheduledAt"]), ended_at)
        return self.overlap == "REPLACE" and newer

    def _is_newer_due(self, at: datetime, now: datetime) -> bool:
        return any(at < other <= now for other in self.due)

    def _may_run(self, it: Occurrence, record: Record) -> bool:
        """False for what a pause takes away, and for what SKIP or RUN_LATEST would have skipped."""
        if it.unsure or not it.required:
            return True
        if it.span.paused:
            return False
        if it.in_pause:
            resumed_at = it.span.resumed_at
            superseded = it.next_at is not None and resumed_at and it.next_at <= resumed_at
            return self._policy == "RUN_ALL" or (self._policy == "RUN_LATEST" and not superseded)
        if self._policy != "SKIP" or record["dispatch"] != 1 or "dispatchedAt" not in record:
            return True
        return instant(record["dispatchedAt"]) - it.at <= _MISSED + _DISPATCH_TAKES

    def _judge_effects(self, record: Record, marks: Sequence[Mark]) -> None:
        """What the scripts of one run's attempts did. *marks*: the earliest first."""
        execution_id = record["executionId"]
        attempts = record.get("attempts", [])
        claimed = Counter(attempt["number"] for attempt in attempts)
        begun = Counter(mark.attempt for mark in marks)
        for number, times in begun.items():
            # An attempt that was handed back gives its number to the next one.
            if times > claimed[number]:
                what = f"attempt {number} begun {times} times, on record {claimed[number]} times"
                self._double(what, execution_id, record)
        latest = marks[0]
        for mark in marks[1:]:
            if mark.begun_at < latest.alive_until:
                what = f"attempts {latest.attempt} and {mark.attempt} alive at once"
                self._double(what, f"{execution_id}: {latest.alive_until - mark.begun_at}", record)
            latest = max(latest, mark, key=lambda each: each.alive_until)
        for mark in marks:
            if ended := self._ended_before(mark, record):
                self._double(f"attempt {mark.attempt} begun {ended}", execution_id, record)
        kept = 0
        for mark in marks:
            if mark.found is not None and mark.found < kept:
                what = f"checkpoint {kept} was kept, {mark.found} was found"
                self._add(Wrong.OTHER, what, execution_id, record)
            kept = max(kept, mark.saved)

    def _ended_before(self, mark: Mark, record: Record) -> str | None:
        """Why the attempt of *mark* should not have begun: the run was over."""
        for attempt in record.get("attempts", []):
            done = attempt.get("outcome") == "SUCCEEDED"
            if done and instant(attempt["finishedAt"]) < mark.begun_at:
                return f"after attempt {attempt['number']} had SUCCEEDED"
        # A cancel bears the instant of its decision, which may be before the last attempt's end.
        ends = [each["finishedAt"] for each in record.get("attempts", []) if "finishedAt" in each]
        if "finishedAt" in record and (
            max(map(instant, [record["finishedAt"], *ends])) < mark.begun_at
        ):
            return f"after the run had ended {record['state']}"
        answered_at = self.history.cancels.get(record["executionId"])
        if answered_at is not None and answered_at < mark.begun_at:
            # A script begins some time after its run was claimed.
            claims = [a for a in record["attempts"] if a["number"] == mark.attempt]
            if all(instant(claim["startedAt"]) > answered_at for claim in claims):
                return "after a cancel was answered"
        base = record.get("attemptsBeforeRedrive", 0)
        asked = self.history.redrives.get(record["executionId"], [])
        if base and mark.attempt > base and asked and mark.begun_at < asked[0]:
            return "after it was DEAD, before it was redriven"
        return None

    def _judge_exclusion(self) -> None:
        every = sorted((m for marks in self.marks.values() for m in marks), key=_begun)
        for one, other in pairwise(every):
            both = one.execution_id, other.execution_id
            if other.begun_at < one.alive_until and len(set(both)) > 1:
                what = f"two runs alive at once though overlap is {self.overlap}"
                self._double(what, " and ".join(both), self.by_id.get(other.execution_id))

    def _was_killed(self, attempt: Record) -> bool:
        """Whether a worker that may be this attempt's was killed while it had the run."""
        began, ended = instant(attempt["startedAt"]), instant(attempt["finishedAt"])
        name = attempt["worker"]
        mine = None if name.startswith("lambda-") else name
        killed = any(x.worker == mine and began <= x.at <= ended for x in self.losses)
        return killed or any(began <= stop <= ended for stop, _ in self.stops)

    def _tell_lateness(self, it: Occurrence, record: Record) -> None:
        due_at = it.at
        if it.in_pause and it.span.resumed_at is not None:
            due_at = it.span.resumed_at
        started_at = instant(record["attempts"][0]["startedAt"])
        started = started_at - due_at
        started_apart = started - stopped(self.stops, due_at, started_at)
        dispatched = dispatched_apart = None
        if record["dispatch"] == 1 and "dispatchedAt" in record:
            dispatched_at = instant(record["dispatchedAt"])
            dispatched = dispatched_at - due_at
            dispatched_apart = dispatched - stopped(self.stops, due_at, dispatched_at)
        self.found.lateness.append(
            Lateness(record["executionId"], dispatched, started, dispatched_apart, started_apart)
        )

    def _lost(self, what: str, about: str, record: Record | None) -> None:
        self.row.lost += 1
        self._add(Wrong.LOST, what, about, record)

    def _double(self, what: str, about: str, record: Record | None) -> None:
        self.row.double_effects += 1
        self._add(Wrong.DOUBLE, what, about, record)

    def _add(self, wrong: Wrong, what: str, about: str, record: Record | None) -> None:
        job = f"{self.history.tenant}/{self.history.job_id}"
        self.found.anomalies.append(Anomaly(wrong, what, job, about, record))


def _begun(mark: Mark) -> datetime:
    return mark.begun_at


def stopped(stops: Stops, since: datetime, until: datetime) -> timedelta:
    """How long the stack was stopped between *since* and *until*."""
    return sum(_overlaps(stops, since, until), timedelta())


def _overlaps(stops: Stops, since: datetime, until: datetime) -> Iterator[timedelta]:
    for down_at, up_at in stops:
        yield max(min(up_at, until) - max(down_at, since), timedelta())
