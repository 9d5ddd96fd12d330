"""Whether policies and requests permitted what was decided about a job's occurrences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from tests.soak.account import Account, Record
from tests.soak.delays import BUSY, Outside, overlaps, pool_of
from tests.soak.marks import Mark
from tests.soak.oracle import History, Occurrence, instant, occurrences

_MISSED = timedelta(seconds=60)
_DISPATCH_TAKES = timedelta(seconds=5)
"""From the watcher's decision to the message's timestamp."""
LATE = timedelta(seconds=60)
"""Later starts need a cause."""


class JobDecisions:
    """A job's occurrences, records and marks, and what was permitted for them."""

    def __init__(
        self,
        history: History,
        records: Sequence[Record],
        marks: Sequence[Mark],
        until: datetime,
        outside: Outside,
        found: Account,
    ) -> None:
        self.history = history
        self.records = sorted(records, key=lambda record: str(record["executionId"]))
        self.by_id = {record["executionId"]: record for record in self.records}
        self.marks: dict[str, list[Mark]] = defaultdict(list)
        for mark in sorted(marks, key=lambda mark: mark.begun_at):
            self.marks[mark.execution_id].append(mark)
        self.due = occurrences(history, until)
        self.outside = outside
        self.stops = outside.stops
        self.losses = outside.losses
        self.found = found
        self.pool = pool_of(history)
        self.covers: dict[datetime, list[Record]] = defaultdict(list)
        self.row = found.rows[history.document["type"]]
        self.misfire = history.document.get("misfire", {})
        self.overlap = history.document.get("overlap", "ALLOW")

    def _covered_by(self, record: Record) -> list[Occurrence]:
        first = instant(record["scheduledAt"])
        if first not in self.due:
            return []
        last = instant(record.get("range", {}).get("to", record["scheduledAt"]))
        span = self.due[first].span
        return [o for at, o in self.due.items() if first <= at <= last and o.span is span]

    def _may_be_skipped(self, it: Occurrence, record: Record, covered: list[Occurrence]) -> bool:
        """Whether a policy permitted skipping *it* when that was decided."""
        decided_at = instant(record["finishedAt"])
        if it.span.paused:
            return True
        if self.overlap == "REPLACE" and self._is_replaced(it, decided_at):
            return True
        if self.overlap == "SKIP" and self._had_not_ended(it.at):
            return True
        return self._is_too_late(it, covered[0], decided_at)

    def _is_too_late(self, it: Occurrence, first: Occurrence, decided_at: datetime) -> bool:
        """Whether the relevancy window or the misfire policy skips *it* at that instant, in a row
        that begins with *first*, and there is a cause for the lateness.
        """
        window = self.misfire.get("relevancyWindowSec")
        if window is not None and decided_at - it.at > timedelta(seconds=window):
            return decided_at - it.at <= LATE or self._has_cause(it, decided_at)
        # Under RUN_LATEST, a missed first one takes all due occurrences with it except the latest.
        judged = first if self._policy == "RUN_LATEST" else it
        if not judged.in_pause and (
            decided_at - judged.at <= _MISSED or not self._is_missed_for_a_cause(judged, decided_at)
        ):
            return False
        superseded = it.next_at is not None and it.next_at <= decided_at
        return self._policy == "SKIP" or (self._policy == "RUN_LATEST" and superseded)

    @property
    def _policy(self) -> str:
        return str(self.misfire.get("policy", "RUN_LATEST"))

    def _is_missed_for_a_cause(self, it: Occurrence, decided_at: datetime) -> bool:
        """Whether the watcher may have been that late. Workers matter only if the job's runs wait
        for each other.
        """
        if self.overlap != "ALLOW":
            return self._has_cause(it, decided_at)
        return self.outside.stopped(it.at, decided_at) or self.outside.watcher_killed(
            self.pool, it.at, decided_at
        )

    def _has_cause(self, it: Occurrence, until: datetime) -> bool:
        """Whether something was killed, stopped, busy or ahead of *it* between its due time (in a
        pause: the resumption) and *until*.
        """
        since = self._due_at(it)
        return (
            self.outside.stopped(since, until)
            or self.outside.killed(self.pool, since, until)
            or self.outside.busy(self.pool, since, until)
            or self._was_delayed_by_earlier_runs(it, since, until)
        )

    def _was_delayed_by_earlier_runs(
        self, it: Occurrence, since: datetime, until: datetime
    ) -> bool:
        """Whether earlier runs, of a job whose runs wait for each other, were running for most of
        that time.
        """
        if self.overlap == "ALLOW":
            return False
        works = [
            (
                instant(record["attempts"][0]["startedAt"]),
                instant(record["finishedAt"]) if "finishedAt" in record else until,
            )
            for record in self.records
            if record.get("attempts") and instant(record["scheduledAt"]) < it.at
        ]
        return sum(overlaps(works, since, until), timedelta()) >= (until - since) * BUSY

    @staticmethod
    def _due_at(it: Occurrence) -> datetime:
        """The due time; for occurrences in a pause, the resumption."""
        resumed_at = it.span.resumed_at
        return it.at if resumed_at is None else max(it.at, resumed_at)

    def _had_not_ended(self, at: datetime) -> bool:
        """Whether an earlier run that was not skipped had not ended at *at*."""
        return any(
            record.get("attempts")
            and instant(record["scheduledAt"]) < at
            and ("finishedAt" not in record or instant(record["finishedAt"]) > at)
            for record in self.records
        )

    def _may_be_cancelled(self, record: Record) -> bool:
        if record["executionId"] in self.history.cancels:
            return True
        ended_at = instant(record["finishedAt"])
        it = self.due.get(instant(record["scheduledAt"]))
        if it is None:
            return False  # reported already: nothing was due then
        deleted_at = self.history.deleted_at
        if deleted_at is not None and deleted_at <= ended_at:
            waited = deleted_at - self._due_at(it)
            in_time = bool(record.get("attempts")) or waited <= LATE or it.span.paused
            if in_time or self._has_cause(it, deleted_at):
                return True
        return self.overlap == "REPLACE" and self._is_replaced(it, ended_at)

    def _is_replaced(self, it: Occurrence, now: datetime) -> bool:
        """Whether a newer run replaced it: one that began, or was itself replaced by one that
        began, or did not begin for its own reason. In a longer row, each run waited until the next
        was due, which needs a cause.
        """
        for place in self._places(it, now):
            following = [*self._places(place, self._ended_at(place, now))]
            if self._is_settled(place) or any(map(self._is_settled, following)):
                return True
            if following and self._has_cause(it, now):
                return True
        return False

    def _places(self, it: Occurrence, now: datetime) -> Iterator[Occurrence]:
        return (other for at, other in self.due.items() if it.at < at <= now)

    def _ended_at(self, it: Occurrence, now: datetime) -> datetime:
        ends = [instant(r["finishedAt"]) for r in self.covers[it.at] if "finishedAt" in r]
        return max(ends, default=now)

    def _is_settled(self, it: Occurrence) -> bool:
        """Whether it began, or did not begin for a reason other than a replacement."""
        # A missing record is reported separately if it is required.
        return (
            it.span.paused
            or not self.covers[it.at]
            or any(
                record.get("attempts")
                or record["executionId"] in self.history.cancels
                or (record["state"] == "CANCELLED" and self.history.deleted_at is not None)
                or (record["state"] == "SKIPPED" and self._was_too_late(it, record))
                for record in self.covers[it.at]
            )
        )

    def _was_too_late(self, it: Occurrence, record: Record) -> bool:
        return self._is_too_late(it, self._covered_by(record)[0], instant(record["finishedAt"]))

    def _may_run(self, it: Occurrence, record: Record) -> bool:
        """False for occurrences that a pause removes, and for those that SKIP or RUN_LATEST would
        have skipped.
        """
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

    def _was_killed(self, attempt: Record, *, grace: timedelta = timedelta()) -> bool:
        """Whether a worker that may have run this attempt was killed, or the stack stopped, during
        the attempt or at most *grace* before.
        """
        began, ended = instant(attempt["startedAt"]) - grace, instant(attempt["finishedAt"])
        name = attempt["worker"]
        mine = ("executor-lambda", None) if name.startswith("lambda-") else ("worker", name)
        killed = any((x.what, x.worker) == mine and began <= x.at <= ended for x in self.losses)
        return killed or any(began <= stop <= ended for stop, _ in self.stops)
