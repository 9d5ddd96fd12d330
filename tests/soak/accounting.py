"""Checks that every occurrence is accounted for and nothing was done twice, from the records in the
API, the marks of scripts, and the expected occurrences. None of this uses nextfire's code.
"""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from tests.soak.account import Account, Anomaly, AnomalyKind, Lateness, Record
from tests.soak.decisions import LATE, JobDecisions
from tests.soak.delays import Loss, Outside, Stops, stopped, works
from tests.soak.marks import Mark
from tests.soak.oracle import History, Occurrence, instant

_ENDED = frozenset({"SUCCEEDED", "CANCELLED", "SKIPPED", "DEAD"})
_EARLY = timedelta(seconds=2)
"""Nothing may be sent or begin earlier before its due time; the maximum skew of clocks."""
_KILL_TAKES = timedelta(seconds=20)
"""How long after a kill, or into a stop, an attempt may be recorded as failed: the grace period."""


def account(
    histories: Iterable[History],
    records: Mapping[tuple[str, str], Sequence[Record]],
    marks: Sequence[Mark],
    *,
    until: datetime,
    stops: Stops = (),
    losses: Sequence[Loss] = (),
    slots: Mapping[str, int] | None = None,
) -> Account:
    """Account for all occurrences due up to *until*.

    Args:
        histories: The jobs.
        records: The API's listing of each, by tenant and job id.
        marks: The marks of scripts.
        until: An instant at which the system was at rest.
        stops: When the whole stack was stopped, and when it was back.
        losses: The killed workers, Lambda executors and watchers.
        slots: Number of concurrent runs of a pool; a pool that is missing is never busy.
    """
    found = Account()
    jobs = [*histories]
    outside = Outside(stops, losses, works(jobs, records), slots or {})
    by_job: dict[tuple[str, str], list[Mark]] = defaultdict(list)
    for mark in marks:
        by_job[mark.tenant, mark.execution_id.partition(".")[0]].append(mark)
    for history in jobs:
        key = history.tenant, history.job_id
        _Job(history, records.get(key, ()), by_job.pop(key, []), until, outside, found).judge()
    for (tenant, job_id), left in by_job.items():
        for mark in left:
            found.anomalies.append(
                Anomaly(AnomalyKind.DOUBLE, "no such job", f"{tenant}/{job_id}", mark.execution_id)
            )
    return found


class _Job(JobDecisions):
    """The account of one job."""

    def judge(self) -> None:
        self._judge_coverage()
        self._judge_skips()
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
        """Check that each occurrence has one record or is in one range, and that each record covers
        due occurrences.
        """
        self.row.occurrences += sum(each.required for each in self.due.values())
        for record in self.records:
            covered = self._covered_by(record)
            if not covered:
                self._double("no such occurrence", record["executionId"], record)
                continue
            counted = record.get("range", {}).get("count", 1)
            if counted != len(covered):
                self._lost(f"a range of {len(covered)} counts {counted}", "", record)
            if record["state"] == "SKIPPED":
                self.row.skipped += len(covered)
            for each in covered:
                self.covers[each.at].append(record)
        for at, each in self.due.items():
            if not self.covers[at]:
                if each.required:
                    self._lost("no record", str(at), None)
            elif len(self.covers[at]) > 1:
                ids = " and ".join(record["executionId"] for record in self.covers[at])
                self._double("two records of an occurrence", ids, self.covers[at][-1])

    def _judge_skips(self) -> None:
        """Runs after the coverage checks: one record of an occurrence may be another's reason."""
        for record in self.records:
            if record["state"] != "SKIPPED":
                continue
            covered = self._covered_by(record)
            for each in covered:
                if not self._may_be_skipped(each, record, covered):
                    self._lost("skipped without a reason", str(each.at), record)

    def _judge_attempts(self, record: Record) -> None:
        """Check outcomes: lost workers were killed, and only scripts that were to fail failed."""
        execution_id = record["executionId"]
        for attempt, following in pairwise([*record.get("attempts", []), None]):
            outcome = attempt.get("outcome")
            self.row.handed_back += outcome == "HANDED_BACK"
            if outcome == "WORKER_LOST":
                killed = self._was_killed(attempt)
                self.row.repeated += following is not None
                if following is not None and not killed:
                    self.found.repeated_without_kill += 1
                    self.found.taken_over.append(f"{execution_id}, attempt {attempt['number']}")
                if record["state"] == "DEAD" and following is None and not killed:
                    self._lost("DEAD by a lost worker without a kill", execution_id, record)
            if outcome in {"FAILED", "TIMED_OUT"} and not self._may_fail(attempt, execution_id):
                what = f"attempt {attempt['number']} {outcome} although its script was not to fail"
                self._lost(what, execution_id, record)

    def _judge_record(self, record: Record) -> None:
        execution_id, state = record["executionId"], record["state"]
        attempts = record.get("attempts", [])
        self._judge_attempts(record)
        if state not in _ENDED:
            self._lost("not ended at rest", execution_id, record)
            return
        if state == "SUCCEEDED" and not self._has_effect(record):
            self._lost("SUCCEEDED, but its script did not end", execution_id, record)
        if state == "CANCELLED" and not self._may_be_cancelled(record):
            self._lost("cancelled without a reason", execution_id, record)
        most = self.history.document.get("retryPolicy", {}).get("maxAttempts", 3)
        tries = record.get("attempt", 0) - record.get("attemptsBeforeRedrive", 0)
        if state == "DEAD" and tries < most:
            self._lost(f"DEAD after {tries} of {most} attempts", execution_id, record)
        if tries > most:
            self._double(f"{tries} attempts, limit {most}", execution_id, record)
        asked = self.history.redrives.get(execution_id, [])
        if "attemptsBeforeRedrive" in record and not asked:
            self._double("redriven without a request", execution_id, record)
        it = self.due.get(instant(record["scheduledAt"]))
        if self._is_early(record):
            self._double("sent or begun before it was due", execution_id, record)
        if it is not None and attempts and not self._may_run(it, record):
            self._double("ran against its policy", execution_id, record)
        if it is not None and attempts:
            self._record_lateness(it, record)

    def _is_early(self, record: Record) -> bool:
        begun = [mark.begun_at for mark in self.marks.get(record["executionId"], [])]
        recorded = [each["startedAt"] for each in record.get("attempts", [])]
        if "dispatchedAt" in record:
            recorded.append(record["dispatchedAt"])
        earliest = instant(record["scheduledAt"]) - _EARLY
        return any(at < earliest for at in [*begun, *map(instant, recorded)])

    def _may_fail(self, attempt: Record, execution_id: str) -> bool:
        """Whether its script began and was to fail, or was killed or stopped with its host, or had
        to run without the stack.
        """
        number = attempt["number"]
        began = any(mark.attempt == number for mark in self.marks.get(execution_id, []))
        if began and is_to_fail(self.history.document.get("payload", {}), execution_id, number):
            return True
        return self._was_killed(attempt, grace=_KILL_TAKES)

    def _has_effect(self, record: Record) -> bool:
        number = record["attempts"][-1]["number"]
        marks = self.marks.get(record["executionId"], [])
        return any(mark.attempt == number and mark.code == 0 for mark in marks)

    def _judge_effects(self, record: Record, marks: Sequence[Mark]) -> None:
        """Check the effects of one run's attempts. *marks*: earliest first."""
        execution_id = record["executionId"]
        attempts = record.get("attempts", [])
        claimed = Counter(attempt["number"] for attempt in attempts)
        begun = Counter(mark.attempt for mark in marks)
        for number, times in begun.items():
            # An attempt that was handed back passes its number to the next one.
            if times > claimed[number]:
                what = f"attempt {number} begun {times} times, recorded {claimed[number]} times"
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
                what = f"checkpoint {kept} was saved, but {mark.found} was found"
                self._add(AnomalyKind.OTHER, what, execution_id, record)
            kept = max(kept, mark.saved)

    def _ended_before(self, mark: Mark, record: Record) -> str | None:
        """Why the attempt of *mark* should not have begun: the run had ended."""
        for attempt in record.get("attempts", []):
            done = attempt.get("outcome") == "SUCCEEDED"
            if done and instant(attempt["finishedAt"]) < mark.begun_at:
                return f"after attempt {attempt['number']} had SUCCEEDED"
        # A cancel has the instant of its decision, which may be before the last attempt's end.
        ends = [each["finishedAt"] for each in record.get("attempts", []) if "finishedAt" in each]
        if "finishedAt" in record and (
            max(map(instant, [record["finishedAt"], *ends])) < mark.begun_at
        ):
            return f"after the run had ended {record['state']}"
        answered_at = self.history.cancels.get(record["executionId"])
        if answered_at is not None and answered_at < mark.begun_at:
            # A script begins some time after its run is claimed.
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
                what = f"two runs alive at once although overlap is {self.overlap}"
                self._double(what, " and ".join(both), self.by_id.get(other.execution_id))

    def _record_lateness(self, it: Occurrence, record: Record) -> None:
        due_at = self._due_at(it)
        started_at = instant(record["attempts"][0]["startedAt"])
        started = started_at - due_at
        started_apart = started - stopped(self.stops, due_at, started_at)
        dispatched = dispatched_apart = None
        if record["dispatch"] == 1 and "dispatchedAt" in record:
            dispatched_at = instant(record["dispatchedAt"])
            dispatched = dispatched_at - due_at
            dispatched_apart = dispatched - stopped(self.stops, due_at, dispatched_at)
        late = Lateness(record["executionId"], dispatched, started, dispatched_apart, started_apart)
        self.found.lateness.append(late)
        if started > LATE and not self._has_cause(it, started_at):
            self.found.late_without_cause.append(late)

    def _lost(self, what: str, about: str, record: Record | None) -> None:
        self.row.lost += 1
        self._add(AnomalyKind.LOST, what, about, record)

    def _double(self, what: str, about: str, record: Record | None) -> None:
        self.row.double_effects += 1
        self._add(AnomalyKind.DOUBLE, what, about, record)

    def _add(self, wrong: AnomalyKind, what: str, about: str, record: Record | None) -> None:
        job = f"{self.history.tenant}/{self.history.job_id}"
        self.found.anomalies.append(Anomaly(wrong, what, job, about, record))


def is_to_fail(payload: Mapping[str, Any], execution_id: str, attempt: int) -> bool:
    """Whether a script with *payload* is to fail in that attempt: see `marks.SOURCE`."""
    match payload.get("do"):
        case "fail":
            return attempt <= int(payload["fails"])
        case "flaky":
            return attempt == 1 and zlib.crc32(execution_id.encode()) % 2 == 0
        case _:
            return False


def _begun(mark: Mark) -> datetime:
    return mark.begun_at
