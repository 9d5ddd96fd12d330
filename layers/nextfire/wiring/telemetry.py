"""Logs and metrics with Powertools: JSON lines and CloudWatch's embedded metric format."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from zlib import crc32

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.errors import UnavailableError
from nextfire.domain.instants import isoformat
from nextfire.domain.metrics import ANY_SERVICE, NAMESPACE, Metric
from nextfire.domain.ports.control import Lease
from nextfire.domain.run import Run, RunState
from nextfire.settings import own_log_level

if TYPE_CHECKING:  # each function imports only the use cases that it needs
    from nextfire.usecases.audit_report import AuditReport
    from nextfire.usecases.dispatch.report import Behind, Dispatched, TickReport
    from nextfire.usecases.handled import Handled

_NOTES = 20
"""Maximum lines that one step logs; a deleted pool affects thousands of entries at a time."""


_VALUES = 99
"""Values of a metric per log line. At a hundred, the limit of the embedded metric format,
Powertools starts another line. More lines would cost more than the runs that they report.
"""


def representatives(values: Sequence[timedelta], most: int) -> list[timedelta]:
    """A sample of *values*: all of them up to *most* (≥ 2); above that, *most* of them, evenly
    spaced by rank from the smallest to the largest, which preserves the percentiles.
    """
    if len(values) <= most:
        return list(values)
    ranked, last = sorted(values), len(values) - 1
    return [ranked[round(rank * last / (most - 1))] for rank in range(most)]


def is_sampled(identity: str, part: float) -> bool:
    """Whether *identity* is in the sample of *part* (0 to 1) of all: always, or never."""
    return crc32(identity.encode()) < part * (1 << 32)


def _milliseconds(duration: timedelta) -> float:
    return duration / timedelta(milliseconds=1)


def _details(why: Exception | str) -> dict[str, Any]:
    """The fields of a log line about an error. Only unexpected errors include their traceback."""
    expected = isinstance(why, str | UnavailableError)
    return {"error": str(why)} if expected else {"exc_info": why}


def _publish(
    metric: Metric,
    value: float,
    dimensions: Mapping[str, str],
    unit: MetricUnit = MetricUnit.Count,
) -> None:
    """Write one metric with its own *dimensions*, unless metrics are disabled. Powertools'
    `single_metric` writes it always.
    """
    line = EphemeralMetrics(namespace=NAMESPACE)
    for name, of in dimensions.items():
        line.add_dimension(name=name, value=of)
    line.add_metric(name=metric.value, unit=unit, value=value)
    line.flush_metrics()


class Telemetry:
    """The logger and the metrics of one function. `service` is the name of its folder."""

    def __init__(self, service: str) -> None:
        self.logger = Logger(service=service)
        if level := own_log_level():
            logging.getLogger(service).setLevel(level)
        self._metrics = Metrics(namespace=NAMESPACE, service=service)
        self._counts: Counter[Metric] = Counter()
        self._log_sample = 1.0
        self._lateness: dict[Metric, list[timedelta]] = defaultdict(list)
        self._group: int | None = None
        self._ticks = 0  # of the watcher of `_group`, and:
        self._behind: Behind | None = None
        self._turn = threading.RLock()  # executors of calls handle messages concurrently

    def count(self, metric: Metric, value: int = 1) -> None:
        if value:
            self._counts[metric] += value

    def sample(self, part: float) -> None:
        """From now on, log only *part* (0 to 1) of the runs that succeed."""
        self._log_sample = part

    def warn(self, what: str, why: Exception | str) -> None:
        """Log an error that resolves itself."""
        self.logger.warning(what, **_details(why))

    def fail(self, what: str, why: Exception | str) -> None:
        """Log an error that an operator must look at."""
        self.logger.error(what, **_details(why))

    def wake_up_lost(self, why: Exception) -> None:
        """Log and count a watcher that could not be woken."""
        with self._turn:
            self.count(Metric.WAKE_UPS_LOST)
        self.warn("a watcher was not woken: what is due waits for the next tick", why)

    def took_lease(self, group: int, lease: Lease) -> None:
        self._flush_group()  # a process can serve several groups, one after the other
        self._group = group
        lost = lease.takeover and isoformat(lease.takeover.lost_at)
        self.logger.info("holds the lease", group=group, epoch=lease.epoch, last_lost_at=lost)

    def tick(self, report: TickReport) -> None:
        """Log and count what a watcher's step did."""
        for run in report.dispatched:
            late = Metric.HELD_BACK_FOR if run.held_back else Metric.DISPATCH_LATENESS
            self._lateness[late].append(run.lateness)
        if self.logger.log_level <= logging.DEBUG:
            self._log_dispatched(report.dispatched)
        self.count(Metric.DISPATCHED, len(report.dispatched))
        self._ticks += report.polled
        self._behind = report.behind or self._behind
        self.count(Metric.UNDELIVERED, report.undelivered)
        self.count(Metric.HELD_BACK, report.held_back)
        self._count_skipped(report.skipped)
        self.count(Metric.QUARANTINED, report.quarantined)
        self._log_notes(report.notes)

    def audited(self, report: AuditReport) -> None:
        """Log and count what a page of the audit did."""
        self.count(Metric.AUDITED, report.jobs)
        self.count(Metric.REPAIRED, report.repaired)
        self.count(Metric.QUARANTINED, report.quarantined)
        self._log_notes(report.notes)

    def _log_notes(self, notes: Sequence[str]) -> None:
        for note in notes[:_NOTES]:
            self.logger.warning(note)
        if len(notes) > _NOTES:
            self.logger.warning("more of the same", count=len(notes) - _NOTES)

    def _log_dispatched(self, dispatched: Sequence[Dispatched]) -> None:
        for run in dispatched:
            self.logger.debug(
                "dispatched",
                execution_id=run.run.execution_id,
                tenant=run.run.job.tenant,
                lateness_ms=round(_milliseconds(run.lateness), 1),
                reason=run.reason,
            )

    def _count_skipped(self, records: Sequence[Run]) -> None:
        self.count(Metric.SKIPPED, sum(run.covered for run in records))
        for record in records[:_NOTES]:
            self._log_skipped(record)

    def _log_skipped(self, run: Run) -> None:
        self.logger.info(
            run.reason or "skipped",
            execution_id=run.key.execution_id,
            tenant=run.key.job.tenant,
            state=run.state,
            covered=run.covered,
        )

    def handled(self, handled: Handled) -> None:
        """Log and count the outcome of a message."""
        with self._turn:
            self._handled(handled)

    def _handled(self, handled: Handled) -> None:
        self.count(Metric.STARTED, int(handled.started))
        self.count(Metric.LOST, int(handled.lost))
        self.count(Metric.QUARANTINED, int(handled.quarantined))
        run = handled.run
        self.count(Metric.SKIPPED, int(handled.skipped))
        self._count_skipped(handled.missed)
        if handled.outcome is AttemptOutcome.SUCCEEDED:
            self.count(Metric.SUCCEEDED)
        elif handled.outcome in (AttemptOutcome.FAILED, AttemptOutcome.TIMED_OUT):
            self.count(Metric.FAILED)
        troubled = handled.quarantined or (run is not None and run.state is RunState.DEAD)
        logs = self.logger
        log = logs.error if troubled else logs.info if self._is_logged(handled) else logs.debug
        log(
            handled.reason,
            execution_id=run.key.execution_id if run else None,
            tenant=run.key.job.tenant if run else None,
            state=run.state if run else None,
            attempt=run.attempt if run else None,
            disposition=handled.disposition.value,
        )

    def _is_logged(self, handled: Handled) -> bool:
        """Whether the sample includes the run of *handled*: all that is done for it, or nothing."""
        if handled.outcome is not AttemptOutcome.SUCCEEDED or handled.run is None:
            return True
        execution = handled.run.key.execution_id
        return is_sampled(execution, self._log_sample)

    def flush(self) -> None:
        """Write the metrics that were counted since the last call."""
        counts, self._counts = self._counts, Counter()
        for metric, value in counts.items():
            self._metrics.add_metric(name=metric, unit=MetricUnit.Count, value=value)
        pending = bool(counts)
        for metric, values in self._lateness.items():
            for lateness in representatives(values, _VALUES):
                self._metrics.add_metric(
                    name=metric, unit=MetricUnit.Milliseconds, value=_milliseconds(lateness)
                )
                pending = True
        self._lateness.clear()
        self._flush_group()
        if pending:
            self._metrics.flush_metrics()
        if defects := counts[Metric.QUARANTINED] + counts[Metric.REPAIRED]:
            _publish(Metric.DEFECTS, defects, {"service": ANY_SERVICE})

    def _flush_group(self) -> None:
        """Write the ticks of the watcher's group, which has its own alarm, and whether it is
        behind.
        """
        ticks, self._ticks = self._ticks, 0
        behind, self._behind = self._behind, None
        if self._group is None:
            return
        group = {"service": "watcher", "group": str(self._group)}
        if ticks:
            _publish(Metric.TICKS, ticks, group)
        if behind is not None:
            _publish(Metric.BEHIND, _milliseconds(behind.by), group, MetricUnit.Milliseconds)
            _publish(Metric.DUE_BACKLOG, behind.backlog, group)


_ROUTINE = frozenset({Metric.STARTED, Metric.SUCCEEDED})


class WorkerTelemetry(Telemetry):
    """Publishes what needs attention at once, and the rest within *every*. Serializes its threads.
    A worker that dies loses the counts of that time.
    """

    def __init__(self, *, every: timedelta = timedelta(seconds=10)) -> None:
        super().__init__("worker")
        self._every = every
        self._timer: threading.Timer | None = None

    def handled(self, handled: Handled) -> None:
        with self._turn:
            super().handled(handled)
            if self._counts.keys() - _ROUTINE:
                self.flush()
            elif self._counts and self._timer is None:
                self._timer = threading.Timer(self._every.total_seconds(), self.flush)
                self._timer.daemon = True
                self._timer.start()

    def flush(self) -> None:
        with self._turn:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            super().flush()
