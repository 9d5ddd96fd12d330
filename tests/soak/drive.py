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
from random import Random

from nextfire import ApiError
from tests.soak import marks, plan
from tests.soak.account import Account, Record
from tests.soak.accounting import account
from tests.soak.api_user import ApiUser
from tests.soak.delays import Loss
from tests.soak.oracle import Document
from tests.soak.target import Target, now

Tell = Callable[[str], None]

ACTION_EVERY = 3.0  # seconds, like all of these
KILL_EVERY = 9.0
AUDIT_EVERY = 60.0
PROGRESS_EVERY = 15.0
AWAY = (5.0, 75.0)
"""How long the stack stays down at each restart, in turn. 75 s is more than the 60 s after which
misfire policies apply. Stopping and starting take about 15 s more.
"""
_REST_AT_MOST = timedelta(minutes=17)
"""The message of a Lambda executor that was killed at its start is hidden for 15 minutes."""


@dataclass(frozen=True, slots=True)
class SoakConfig:
    """The parameters of a soak test."""

    minutes: float
    jobs: int
    seed: int
    restarts: int


class Soak(ApiUser):
    """One soak test on a running stack."""

    def __init__(self, stack: Target, wanted: SoakConfig, tell: Tell) -> None:
        super().__init__(stack, wanted.seed)
        self._wanted = wanted
        self._tell = tell
        self._over = threading.Event()
        self._audits: list[Document] = []
        self._audit: Future[Document] | None = None
        self._begins_at = now()
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
