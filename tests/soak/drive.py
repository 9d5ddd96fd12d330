"""Runs a soak test: creates and changes jobs, kills and restarts processes, waits until all is at
rest, and reads the records.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus
from random import Random
from typing import TypeVar

from nextfire import ApiError, Client, ClientError
from tests.soak import marks, oracle, plan
from tests.soak.account import Account, Record
from tests.soak.accounting import account
from tests.soak.delays import Loss
from tests.soak.oracle import Document, Event, History, Operation, instant
from tests.soak.target import Target, now

T = TypeVar("T")
Tell = Callable[[str], None]

ACTION_EVERY = 3.0  # seconds, like all of these
KILL_EVERY = 9.0
AUDIT_EVERY = 60.0
PROGRESS_EVERY = 15.0
AWAY = (5.0, 75.0)
"""How long the stack stays down at each restart, in turn. 75 s is more than the 60 s after which
misfire policies apply. Stopping and starting take about 15 s more.
"""
_RETRY_FOR = 90.0
_REST_AT_MOST = timedelta(minutes=17)
"""The message of a Lambda executor that was killed at its start is hidden for 15 minutes."""
_LOOKED_AT = 10
_LIVING = frozenset({"PENDING", "RUNNING"})
_ACTIONS = ("change", "pause", "resume", "cancel", "redrive", "delete")
_ACTION_WEIGHTS = (26, 18, 22, 14, 14, 6)


@dataclass(frozen=True, slots=True)
class SoakConfig:
    """The parameters of a soak test."""

    minutes: float
    jobs: int
    seed: int
    restarts: int


class Soak:
    """One soak test on a running stack."""

    def __init__(self, stack: Target, wanted: SoakConfig, tell: Tell) -> None:
        self._stack = stack
        self._wanted = wanted
        self._tell = tell
        self._random = Random(f"{wanted.seed} actions")  # noqa: S311 — reproducible
        self._histories: dict[tuple[int, str], History] = {}
        self._apis = stack.apis()
        self._over = threading.Event()
        self._audits: list[Document] = []
        self._audit: Future[Document] | None = None
        self._actions = dict.fromkeys(_ACTIONS, 0)
        self._begins_at = now()
        self.refused: list[str] = []
        self.rested = False

    @property
    def restarts(self) -> int:
        return len(self._stack.log.stops)

    @property
    def kills(self) -> int:
        return len(self._stack.log.kills)

    @property
    def died(self) -> list[str]:
        """Stacks that ended without a kill."""
        return self._stack.log.died

    def run(self) -> Account:
        """Run the whole test. Returns the account."""
        self._begins_at = begins_at = now() + timedelta(seconds=2)
        ends_at = begins_at + timedelta(minutes=self._wanted.minutes)
        planned = deque(
            plan.jobs(
                Random(f"{self._wanted.seed} jobs"),  # noqa: S311
                self._wanted.jobs,
                begins_at,
                ends_at,
                self._stack.marks,
                on_lambda=self._stack.on_lambda,
            )
        )
        killer = threading.Thread(target=self._kill_processes, name="killer")
        killer.start()
        try:
            with ThreadPoolExecutor(1) as auditing:
                self._act(planned, begins_at, ends_at, auditing)
            self._over.set()
            killer.join()
            self._rest()
        finally:
            self._over.set()
            killer.join()
        return self._account()

    def notes(self) -> list[str]:
        """A summary of what was done, for people."""
        kills = dict.fromkeys(self._stack.victims, 0)
        for kill in self._stack.log.kills:
            kills[kill.what] += 1
        repaired = sum(a.get(n, 0) for a in self._audits for n in ("restored", "resent", "revived"))
        return [
            "kills: " + ", ".join(f"{count} {what}" for what, count in kills.items()),
            "actions: " + ", ".join(f"{count} {what}" for what, count in self._actions.items()),
            f"audits completed: {len(self._audits)}; repairs: {repaired}",
            "the stack was stopped: "
            + (
                ", ".join(
                    f"{(up - down).total_seconds():.0f} s" for down, up in self._stack.log.stops
                )
                or "never"
            ),
        ]

    def _act(
        self,
        planned: deque[plan.Planned],
        begins_at: datetime,
        ends_at: datetime,
        auditing: ThreadPoolExecutor,
    ) -> None:
        span = ends_at - begins_at
        turns = self._wanted.restarts
        restarts = deque(begins_at + span * (n + 1) / (turns + 1) for n in range(turns))
        reported = acted = audited = time.monotonic()
        while now() < ends_at:
            if planned and planned[0].at <= now():
                self._create(planned.popleft())
                continue
            if restarts and restarts[0] <= now():
                restarts.popleft()
                self._restart()
            if time.monotonic() - acted > ACTION_EVERY and now() < ends_at - timedelta(seconds=5):
                acted = time.monotonic()
                self._do_something(ends_at)
            if time.monotonic() - audited > AUDIT_EVERY:
                audited = time.monotonic()
                self._collect_audit()
                self._audit = self._audit or auditing.submit(self._stack.audit)
            if time.monotonic() - reported > PROGRESS_EVERY:
                reported = time.monotonic()
                self._progress(f"{max((ends_at - now()).total_seconds(), 0):.0f} s to go")
            time.sleep(0.1)
        if self._audit is not None:
            self._audit.exception()
            self._collect_audit()

    def _kill_processes(self) -> None:
        """Kill processes from time to time, and restart killed workers."""
        random = Random(f"{self._wanted.seed} kills")  # noqa: S311
        kill_at = time.monotonic() + KILL_EVERY
        while not self._over.wait(1.0):
            self._stack.supervise()
            if time.monotonic() > kill_at:
                kill_at = time.monotonic() + random.uniform(0.2, 1.8) * KILL_EVERY
                victims = self._stack.victims
                self._stack.kill(random.choices([*victims], [*victims.values()])[0], random)
        self._stack.supervise()

    def _restart(self) -> None:
        away = AWAY[self.restarts % len(AWAY)]
        if self._wanted.minutes < 5:
            away = AWAY[0]
        self._tell(f"restarting the stack, down for {away:.0f} s")
        self._stack.restart(lambda: time.sleep(away))
        self._apis = self._stack.apis()

    def _progress(self, what: str) -> None:
        begun = marks.count(self._stack.marks)
        self._tell(
            f"{len(self._histories)} jobs, {begun} attempts begun, {self.kills} kills, "
            f"{self.restarts} restarts; {what}"
        )

    def _collect_audit(self) -> None:
        if self._audit is not None and self._audit.done():
            if self._audit.exception() is None:
                self._audits.append(self._audit.result())
            self._audit = None

    # API calls. After a lost answer, the state that the API shows counts.

    def _create(self, planned: plan.Planned) -> None:
        api = self._apis[planned.tenant]
        try:
            job = self._retry(lambda: api.create_job(planned.document).document)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT:
                self._note_rejection(error, planned.document)
                return
            job = self._retry(lambda: api.get_job(planned.job_id).document)
        history = History(self._stack.tenants[planned.tenant], planned.job_id)
        created = Event(Operation.CREATED, instant(job["createdAt"]), now(), planned.document)
        history.events.append(created)
        self._histories[planned.tenant, planned.job_id] = history

    def _do_something(self, ends_at: datetime) -> None:
        action = self._random.choices(_ACTIONS, _ACTION_WEIGHTS)[0]
        living = {
            key: history for key, history in self._histories.items() if not history.deleted_at
        }
        if action == "resume":
            living = {key: history for key, history in living.items() if history.paused}
        if action in {"pause", "delete"}:
            living = {key: history for key, history in living.items() if not history.paused}
        if not living:
            return
        tenant, job_id = self._random.choice(sorted(living))
        history = living[tenant, job_id]
        api = self._apis[tenant]
        try:
            done = getattr(self, f"_{action}")(api, history, ends_at)
        except ApiError as error:
            # The job completed, or the run ended meanwhile.
            done = False
            if error.status not in {HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND}:
                self.refused.append(f"{action} {history.tenant}/{job_id}: {error}")
        self._actions[action] += bool(done)

    def _change(self, api: Client, history: History, ends_at: datetime) -> bool:
        patch = plan.change(self._random, history.document, now(), ends_at)
        if patch is None:
            return False

        def changed() -> Document:
            there = api.get_job(history.job_id).document
            if there["schedule"] == patch["schedule"]:
                return there  # the answer to an earlier request was lost
            return api.change_job(history.job_id, patch).document

        document = {**history.document, **patch}
        try:
            job = self._retry(changed)
        except ApiError as error:
            if error.status == HTTPStatus.UNPROCESSABLE_ENTITY:
                return self._note_rejection(error, document)
            raise
        history.events.append(Event(Operation.CHANGED, instant(job["updatedAt"]), now(), document))
        return True

    def _pause(self, api: Client, history: History, _ends_at: datetime) -> bool:
        job = self._retry(lambda: api.pause_job(history.job_id, reason="soak").document)
        history.events.append(Event(Operation.PAUSED, instant(job["pausedAt"]), now()))
        return True

    def _resume(self, api: Client, history: History, _ends_at: datetime) -> bool:
        job = self._retry(lambda: api.resume_job(history.job_id).document)
        history.events.append(Event(Operation.RESUMED, instant(job["updatedAt"]), now()))
        return True

    def _delete(self, api: Client, history: History, _ends_at: datetime) -> bool:
        def deleted() -> Document:
            there = api.get_job(history.job_id).document
            if there["state"] == "CANCELLED":
                return there
            return api.delete_job(history.job_id).document

        job = self._retry(deleted)
        history.events.append(Event(Operation.DELETED, instant(job["updatedAt"]), now()))
        return True

    def _cancel(self, api: Client, history: History, _ends_at: datetime) -> bool:
        """Cancel a run that has not ended: of *history*, otherwise of some other job."""
        others = [each for each in self._histories.values() if each.tenant == history.tenant]
        for job in [history, *self._random.sample(others, min(len(others), _LOOKED_AT))]:
            with suppress(ApiError):  # a completed job without runs is not found
                found = self._retry(lambda j=job.job_id: api.list_executions(j, limit=10))  # type: ignore[misc]
                living = [run.execution_id for run in found.items if run.state in _LIVING]
                if living:
                    execution_id = self._random.choice(living)
                    job.cancels[execution_id] = None
                    self._retry(lambda i=execution_id: api.cancel_execution(i, reason="soak"))  # type: ignore[misc]
                    job.cancels[execution_id] = now()
                    return True
        return False

    def _redrive(self, api: Client, history: History, _ends_at: datetime) -> bool:
        tenant = next(n for n, name in enumerate(self._stack.tenants) if name == history.tenant)
        found = self._retry(lambda: api.list_all_executions(state="DEAD", limit=50))
        dead = [run for run in found.items if (tenant, run.job_id) in self._histories]
        if not dead:
            return False
        run = self._random.choice(dead)
        execution_id = run.execution_id
        asked = self._histories[tenant, run.job_id].redrives.setdefault(execution_id, [])
        asked.append(now())
        self._retry(lambda: api.redrive_execution(execution_id, reason="soak"))
        return True

    def _note_rejection(self, error: ApiError, document: Document) -> bool:
        """Record a refusal, unless it is right because the job would never fire. Returns False."""
        if not oracle.never_fires(document, now()):
            self.refused.append(f"{document}: {error}")
        return False

    def _retry(self, ask: Callable[[], T]) -> T:
        """Repeat the request until there is an answer.

        Raises:
            ApiError: The API refuses.
            ClientError: No answer within `_RETRY_FOR` seconds.
        """
        until = time.monotonic() + _RETRY_FOR
        while True:
            try:
                return ask()
            except ClientError as error:
                refused = isinstance(error, ApiError) and (
                    error.status < HTTPStatus.INTERNAL_SERVER_ERROR
                )
                if refused or time.monotonic() > until:
                    raise
                time.sleep(0.5)

    def _rest(self) -> None:
        """Wait until nothing is due, queued or running."""
        until, still, reported = now() + _REST_AT_MOST, 0, 0.0
        while now() < until and still < 3:
            self._stack.supervise()
            left = self._stack.unfinished()
            still = 0 if left else still + 1
            if left and time.monotonic() - reported > PROGRESS_EVERY:
                reported = time.monotonic()
                self._progress(f"waiting for {left}")
            time.sleep(1.5)
        self.rested = still == 3
        if not self.rested:
            self._tell(f"not at rest: {self._stack.unfinished()}")

    def _account(self) -> Account:
        self._tell("reading the records")
        until = now()
        records: dict[tuple[str, str], list[Record]] = {}
        states: dict[str, str] = {}
        for (tenant, job_id), history in self._histories.items():
            api = self._apis[tenant]
            with suppress(ApiError):  # a job that is not listed has no record
                runs = self._retry(lambda a=api, j=job_id: [*a.executions(j)])  # type: ignore[misc]
                records[history.tenant, job_id] = [run.document for run in runs]
            states[f"{history.tenant}/{job_id}"] = self._retry(
                lambda a=api, j=job_id: a.get_job(j).state  # type: ignore[misc]
            )
        losses = [
            Loss(kill.at, kill.worker, kill.what)
            for kill in self._stack.log.kills
            if kill.what in {"worker", "executor-lambda", "watcher"}
        ]
        found = account(
            self._histories.values(),
            records,
            marks.read(self._stack.marks),
            until=until,
            # At first EventBridge has not invoked a watcher yet: like a stop without duration.
            stops=[(self._begins_at, self._begins_at), *self._stack.log.stops],
            losses=losses,
            slots=self._stack.slots,
        )
        for history in self._histories.values():
            found.check_state(history, states[f"{history.tenant}/{history.job_id}"])
        return found
