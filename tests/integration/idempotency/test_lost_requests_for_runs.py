"""A request about runs whose answer was lost is repeated, and has one effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.ids import unsent_dispatch
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.run import Run, RunState
from nextfire.usecases.manage_runs import was_started
from nextfire.usecases.skip_next import SkipNext
from tests.builders import claim_run
from tests.fakes import Clock
from tests.integration.deployment import Deployment, message_for
from tests.integration.idempotency.conftest import CRON, KEY, end

NOW = parse_instant("2026-05-24T10:00:00Z")


def dead_run(system: Deployment, job_id: str, *, state: RunState = RunState.DEAD) -> Run:
    job = system.job(job_id)
    message = message_for(job, job.created_at)
    run = claim_run(system.runs, message, job.created_at).run
    failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    system.runs.advance(run, run.ended(state, failed, job.created_at))
    return system.run(message)


def waiting_run(system: Deployment, job_id: str, clock: Clock) -> Run:
    """A run that failed once and is tried again in an hour."""
    job = system.job(job_id)
    message = message_for(job, job.created_at)
    run = claim_run(system.runs, message, job.created_at).run
    failed = Result(AttemptOutcome.FAILED, "exit code 1", 1)
    retry_at = clock.now() + timedelta(hours=1)
    system.runs.advance(run, run.retrying(failed, job.created_at, not_before=retry_at))
    return system.run(message)


def claim_again(system: Deployment, run: Run, clock: Clock) -> Run:
    """Claim *run*, which was redriven; returns it RUNNING."""
    message = message_for(system.job(run.key.job.job_id), run.key.scheduled_at)
    return claim_run(
        system.runs,
        message.model_copy(update={"dispatch": unsent_dispatch(run.dispatch)}),
        clock.now(),
        token="t2",
    ).run


def die_again(system: Deployment, run: Run, clock: Clock) -> Run:
    """Claim and fail *run*, which was redriven; returns it DEAD."""
    clock.advance(timedelta(seconds=1))
    return end(system, claim_again(system, run, clock), clock)


class TestLostRequestsForRuns:
    def test_skip_next(self, system: Deployment, clock: Clock, lost: Callable[..., None]) -> None:
        system.register(jobId="a", schedule="* * * * *")
        lost("POST", "/v1/jobs/a/skip-next", {})
        clock.advance(timedelta(seconds=90))

        again = system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY)

        assert again.status == 200
        assert [isoformat(at) for at in system.job("a").skips] == ["2026-05-24T10:01:00Z"]

    def test_skip_next_of_a_version(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        tag = {"If-Match": system.call("GET", "/v1/jobs/a").headers["etag"]}
        lost("POST", "/v1/jobs/a/skip-next", {}, more=tag)

        again = system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY | tag)

        assert again.status == 200

    def test_backfill(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a", schedule="0 * * * *")
        body = {"from": "2020-05-01T00:00:00Z", "to": "2020-05-02T00:00:00Z"}
        lost("POST", "/v1/jobs/a/backfill", body)

        again = system.call("POST", "/v1/jobs/a/backfill", body, headers=KEY)

        assert (again.status, again.document["count"]) == (202, 24)
        assert system.job("a").revision == 2
        backfill = system.job("a").backfill
        assert backfill is not None
        assert backfill.backfill_id == again.document["backfillId"]

    def test_cancel(self, system: Deployment, clock: Clock, lost: Callable[..., None]) -> None:
        system.register(jobId="a", schedule="* * * * *")
        clock.advance(timedelta(minutes=2))
        [first] = system.call("GET", "/v1/jobs/a/upcoming", query={"count": "1"}).document["items"]
        clock.advance(parse_instant(first["at"]) - clock.now() + timedelta(seconds=1))
        path = f"/v1/executions/{first['executionId']}/cancel"
        lost("POST", path)

        again = system.call("POST", path, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "CANCELLED")
        assert system.call("POST", path, headers={"Idempotency-Key": "new"}).status == 409

    def test_redrive(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        lost("POST", path)
        once = system.call("GET", path.removesuffix("/redrive")).document

        again = system.call("POST", path, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "PENDING")
        assert again.document == once
        assert system.call("POST", path, headers={"Idempotency-Key": "new"}).status == 409

    def test_start_of_a_waiting_run(
        self, system: Deployment, clock: Clock, lost: Callable[..., None]
    ) -> None:
        system.register(jobId="a")
        run = waiting_run(system, "a", clock)
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        lost("POST", path)
        begun = system.runs.get(run.key)
        assert begun is not None
        assert begun.dispatch > run.dispatch
        clock.advance(timedelta(seconds=1))

        assert system.call("POST", path, headers=KEY).status == 200
        assert system.runs.get(run.key) == begun

    def test_start_of_a_waiting_run_that_died_since(
        self, system: Deployment, clock: Clock, lost: Callable[..., None]
    ) -> None:
        system.register(jobId="a")
        run = waiting_run(system, "a", clock)
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        lost("POST", path)
        died = die_again(system, run, clock)

        again = system.call("POST", path, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "DEAD")
        assert system.runs.get(run.key) == died

    @pytest.mark.parametrize(("attempts", "started"), [(0, False), (1, True)])
    def test_a_redrive_by_the_version_before_is_recognized(
        self, system: Deployment, *, attempts: int, started: bool
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")

        assert was_started(replace(run, dispatch=3, attempt_base=attempts)) is started

    def test_run_now(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        lost("POST", "/v1/jobs/a/run", {"reason": "r"})
        [made] = system.call("GET", "/v1/jobs/a/executions").document["items"]

        again = system.call("POST", "/v1/jobs/a/run", {"reason": "r"}, headers=KEY)

        assert (again.status, again.document["executionId"]) == (201, made["executionId"])
        assert len(system.call("GET", "/v1/jobs/a/executions").document["items"]) == 1

    def test_redriven_once_though_it_died_again(
        self, system: Deployment, clock: Clock, lost: Callable[..., None]
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        lost("POST", path)
        died = die_again(system, run, clock)

        again = system.call("POST", path, headers=KEY)

        assert (again.status, again.document["state"]) == (200, "DEAD")
        assert system.runs.get(run.key) == died
        assert system.call("POST", path, headers={"Idempotency-Key": "new"}).status == 200

    def test_a_redrive_that_was_refused_is_done_once_it_can_be(
        self, system: Deployment, clock: Clock
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        system.call("POST", path)
        clock.advance(timedelta(seconds=1))
        running = claim_again(system, run, clock)
        clock.advance(timedelta(seconds=1))
        assert system.call("POST", path, headers=KEY).status == 409
        end(system, running, clock)

        assert system.call("POST", path, headers=KEY).document["state"] == "PENDING"

    def test_a_cancel_that_was_refused_is_refused_again(self, system: Deployment) -> None:
        system.register(jobId="a")
        path = f"/v1/executions/{dead_run(system, 'a').key.execution_id}/cancel"

        assert [system.call("POST", path, headers=KEY).status for _ in range(2)] == [409, 409]

    def test_a_redrive_that_was_refused_is_refused_again(
        self, system: Deployment, clock: Clock
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        path = f"/v1/executions/{run.key.execution_id}/redrive"
        system.call("POST", path)
        die_again(system, run, clock)
        system.call("DELETE", "/v1/jobs/a")

        assert [system.call("POST", path, headers=KEY).status for _ in range(2)] == [409, 409]

    def test_a_redrive_of_what_never_died_is_refused_again(self, system: Deployment) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a", state=RunState.SUCCEEDED)
        path = f"/v1/executions/{run.key.execution_id}/redrive"

        assert [system.call("POST", path, headers=KEY).status for _ in range(2)] == [409, 409]

    @pytest.mark.usefixtures("clock")
    def test_redrive_of_a_pool(self, system: Deployment, lost: Callable[..., None]) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        lost("POST", "/v1/pools/default/redrive", {"reason": "r"})
        pending = system.runs.get(run.key)
        assert pending is not None
        assert pending.state is RunState.PENDING

        again = system.call("POST", "/v1/pools/default/redrive", {"reason": "r"}, headers=KEY)

        assert (again.status, again.document["redriven"]) == (200, [])
        assert system.runs.get(run.key) == pending

    @pytest.mark.parametrize("to", [{}, {"to": "2026-05-25T00:00:00Z"}])
    def test_redrive_of_a_pool_leaves_what_died_again(
        self,
        system: Deployment,
        clock: Clock,
        lost: Callable[..., None],
        to: dict[str, str],
    ) -> None:
        system.register(jobId="a")
        run = dead_run(system, "a")
        lost("POST", "/v1/pools/default/redrive", to)
        died = die_again(system, run, clock)

        again = system.call("POST", "/v1/pools/default/redrive", to, headers=KEY)

        assert (again.status, again.document["redriven"]) == (200, [])
        assert system.runs.get(run.key) == died

    def test_a_skip_that_had_not_happened_skips_what_is_next_now(
        self, system: Deployment, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        system.call("POST", "/v1/jobs", CRON | {"jobId": "a"})
        system.call("POST", "/v1/jobs/a/skip-next")
        before = system.job("a").skips
        clock.advance(timedelta(hours=20))
        with monkeypatch.context() as patch:
            patch.setattr(SkipNext, "skip_next", die)
            with pytest.raises(KeyboardInterrupt):
                system.call("POST", "/v1/jobs/a/skip-next", headers=KEY)
        clock.advance(timedelta(hours=22))

        assert system.call("POST", "/v1/jobs/a/skip-next", headers=KEY).status == 200

        assert system.job("a").skips == (*before, parse_instant("2026-05-27T03:00:00Z"))

    def test_a_skip_that_happened_when_it_came_again_skips_no_other(
        self,
        system: Deployment,
        clock: Clock,
        monkeypatch: pytest.MonkeyPatch,
        lost: Callable[..., None],
    ) -> None:
        def die(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        system.register(jobId="a", schedule="* * * * *")
        with monkeypatch.context() as patch:
            patch.setattr(SkipNext, "skip_next", die)
            with pytest.raises(KeyboardInterrupt):
                system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY)
        clock.advance(timedelta(seconds=90))
        lost("POST", "/v1/jobs/a/skip-next", {})
        skips = system.job("a").skips
        assert len(skips) == 1
        clock.advance(timedelta(seconds=90))

        assert system.call("POST", "/v1/jobs/a/skip-next", {}, headers=KEY).status == 200

        assert system.job("a").skips == skips
