"""A user of the API in a soak test, who creates and changes jobs, and cancels and redrives runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from random import Random
from typing import TypeVar

from nextfire import ApiError, Client, ClientError
from tests.soak import oracle, plan
from tests.soak.oracle import Document, Event, History, Operation, instant
from tests.soak.target import Target, now

T = TypeVar("T")
_RETRY_FOR = 90.0
_LOOKED_AT = 10
_LIVING = frozenset({"PENDING", "RUNNING"})
_ACTIONS = ("change", "pause", "resume", "cancel", "redrive", "delete")
_ACTION_WEIGHTS = (26, 18, 22, 14, 14, 6)


class ApiUser:
    """Repeats each request until there is an answer. After a lost answer, the state that the API
    shows counts. `refused`: unexpected refusals.
    """

    def __init__(self, stack: Target, seed: int) -> None:
        self._stack = stack
        self._random = Random(f"{seed} actions")  # noqa: S311 — reproducible
        self._histories: dict[tuple[int, str], History] = {}
        self._apis = stack.apis()
        self._actions = dict.fromkeys(_ACTIONS, 0)
        self.refused: list[str] = []

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
            current = api.get_job(history.job_id).document
            if current["schedule"] == patch["schedule"]:
                return current  # the answer to an earlier request was lost
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
            current = api.get_job(history.job_id).document
            if current["state"] == "CANCELLED":
                return current
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
