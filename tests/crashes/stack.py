"""The system on moto: processes that may die, requests to it, and simulated time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import Any

from nextfire.adapters.worker.journal import HeldMessage
from nextfire.domain.due import FireEntry, StoredEntry
from nextfire.domain.errors import ConflictError, NotFoundError, QuotaUsedUpError, UnavailableError
from nextfire.domain.instants import MINUTE, from_ms
from nextfire.domain.job import Job
from nextfire.domain.run import RunState
from nextfire.domain.zones import ZoneReading
from nextfire.usecases.audit_report import AuditReport
from nextfire.usecases.return_held import Returned
from tests.builders import a_definition, at, job_key
from tests.crashes.adapters import Adapters
from tests.crashes.names import QUEUE
from tests.crashes.process import Process
from tests.crashes.processes import STEPS, Api, Handler, Invoked, Watcher, Worker
from tests.crashes.stack_records import StackRecords, minute_of
from tests.fakes import Killed
from tests.integration.deployment import Answer

_MOMENT = timedelta(milliseconds=1)


@dataclass
class Stack(StackRecords):
    """One history of a system: its processes, requests, and time. `StackRecords` has the fields."""

    def at(self, time: str) -> None:
        """Move the clock to *time*, as ``12:00:30``."""
        self.clock.move_to(at(time))

    # Processes

    def process(self, what: str, *, bystander: bool = False) -> Adapters:
        """Create a process. A *bystander* does not die."""
        counted = self.counted and not bystander
        return Adapters(self, Process(self.cloud, what, counted=counted))

    def api(self) -> Api:
        return Api(self.process("api"))

    def watcher(self) -> Watcher:
        return Watcher(self.process("watcher"), self.pools)

    def worker(self) -> Worker:
        return Worker(self.process("worker"))

    def supervisor(self, held: Sequence[HeldMessage]) -> Returned:
        """Let a supervisor hand back what its dead worker *held*."""
        return self.process("supervisor").give_back(held)

    def invoked(self) -> Invoked:
        return Invoked(self.process("worker"), self.process("source", bystander=True))

    def auditor(self) -> AuditReport:
        """Invoke the auditor."""
        total = AuditReport()
        for report in self.process("auditor").auditor().continue_audit(self.now + MINUTE):
            total += report
        return total

    # Requests

    def ask(self, do: Callable[[Api], object]) -> None:
        """Let a new API process *do* the request of the flow's caller. A 503 is not an answer."""
        try:
            self.answered = do(self.api())
        except (ConflictError, NotFoundError, QuotaUsedUpError) as error:
            self.answered = error
        except UnavailableError:
            return
        self.starts_at_answer = self.starts.total()

    def send(
        self, method: str, path: str, body: object = None, *, key: str | None = None
    ) -> Answer | None:
        """Send a request with the idempotency *key* to a new process of the API's handler. Returns
        None for a 503.
        """
        answer, events = Handler(self.process("api")).answer(method, path, body, key)
        assert answer.status != HTTPStatus.INTERNAL_SERVER_ERROR, answer.document
        if answer.status == HTTPStatus.SERVICE_UNAVAILABLE:
            return None
        self.audited += events
        return answer

    def register(self, job_id: str = "report", **fields: Any) -> Job:
        """Register a job, hourly by default. *fields* are fields of the definition."""
        api = self.api()
        uid = f"uid{job_id:0<6}"
        return api.jobs.register(job_key(job_id), a_definition(**fields), uid=uid, now=self.now)

    def replace_fire(self, time: str, *, reading: ZoneReading) -> None:
        """Replace the FIRE entry of `report` by one that is due at *time*."""
        [(slot, entry)] = [
            (stored.slot, stored.entry)
            for item in self._due_items()
            for stored in self.due.read(minute_of(item["bucket"]), 0, before=None, consistent=True)
            if isinstance(stored, StoredEntry) and isinstance(stored.entry, FireEntry)
        ]
        self.due.delete([slot])
        self.due.put([replace(entry, at=at(time), reading=reading)], self.now)

    # Time

    def settle(self, until: str) -> None:
        """Let the system run, at least until *until*, until nothing is due, queued or running. A
        watcher or worker that dies is replaced.
        """
        watcher: Watcher | None = None
        worker: Worker | None = None
        for _ in range(STEPS):
            again_at = self.now
            try:
                watcher = watcher or self.watcher()
                again_at = watcher.step()
            except Killed:
                watcher = None
            try:
                worker = worker or self.worker()
                worker.work()
            except Killed:
                worker = None
            self.observe()
            rests = watcher is not None and watcher.holds and not self._is_busy()
            if rests and self.now >= at(until):
                return
            waits = self._is_something_due() or self._is_something_visible()
            idle = watcher is None or not watcher.holds or waits
            instants = [*self._instants(), *([at(until)] if self.now < at(until) else [])]
            if idle or not instants:
                instants.append(max(again_at, self.now + _MOMENT))
            self.clock.move_to(min(instants))
        raise AssertionError(f"not at rest at {self.now}: {self.cloud.items('due')[:3]}")

    def _is_busy(self) -> bool:
        return (
            self._is_something_due()
            or any(item["kind"] == "RETRY" for item in self._due_items())
            or bool(self.cloud.messages(QUEUE))
            or any(
                not RunState(item["state"]).ended
                for item in self.cloud.items("runs")
                if "state" in item  # others are items of joins
            )
        )

    def _is_something_due(self) -> bool:
        return any(_due_at(item) <= self.now for item in self._due_items())

    def _is_something_visible(self) -> bool:
        return any(from_ms(int(m.visible_at)) <= self.now for m in self.cloud.messages(QUEUE))

    def _instants(self) -> list[datetime]:
        """The times of the next events that need no request."""
        dues = [_due_at(item) for item in self._due_items()]
        visible = [from_ms(int(m.visible_at)) + _MOMENT for m in self.cloud.messages(QUEUE)]
        return [each for each in (*dues, *visible) if each > self.now]

    # Records


def _due_at(item: Mapping[str, Any]) -> datetime:
    stamp = str(item["entry"])[:13]
    return from_ms(int(stamp)) if stamp.isdigit() else from_ms(0)
