"""An executor that is called again, or whose calls fail, does nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from nextfire.adapters.aws.clients import SystemClock
from nextfire.domain.attempt import AttemptOutcome
from nextfire.domain.instants import floor_minute
from nextfire.domain.run import RunState
from nextfire.wiring import execution
from tests.builders import claim_run
from tests.integration.deployment import Deployment, Proxy, message_for
from tests.integration.executor.conftest import HOUR, hidings, refuse, send


class TestRepetition:
    def test_message_that_was_sent_twice_runs_once(self, system: Deployment) -> None:
        system.upload("print('hi')")
        message = message_for(system.register(), floor_minute(SystemClock().now()))
        for dedup in ("1", "2"):
            system.send(message.encode(), group="g", dedup=dedup)
        received = system.receive()
        assert len(received) == 2

        assert system.execute(received) == set()

        run = system.run(message)
        assert (run.attempt, run.fence, len(run.attempts)) == (1, 1, 1)

    def test_message_redelivered_after_success_does_not_run_again(self, system: Deployment) -> None:
        system.upload("print('hi')")
        message = send(system, system.register())
        received = system.receive()
        assert system.execute(received) == set()
        before = system.run(message)

        assert system.execute(received) == set()

        assert system.run(message) == before

    def test_death_between_record_and_dead_letter_is_made_up_for(
        self, system: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        system.configure(monkeypatch, lease="PT2S")  # how long the executor retries the copy
        system.upload("raise SystemExit(3)")
        message = send(system, system.register(retryPolicy={"maxAttempts": 1}))
        letters = Proxy(system.queues)
        letters.instead["send_message"] = refuse("ServiceUnavailable")
        monkeypatch.setattr(execution, "sqs", lambda: letters)
        received = system.receive()

        assert system.execute(received) == {received[0]["MessageId"]}
        assert system.run(message).state is RunState.DEAD
        assert system.receive(url=system.dlq_url) == []
        letters.instead.clear()

        assert system.execute(received) == set()

        assert system.run(message).attempt == 1
        assert len(system.receive(url=system.dlq_url)) == 1

    def test_older_dispatch_is_acknowledged(self, system: Deployment) -> None:
        system.upload("raise SystemExit(1)")
        job = system.register(retryPolicy={"initialDelayMs": 3_600_000})
        first = send(system, job)
        received = system.receive()
        system.execute(received)
        before = system.run(first)
        assert before.dispatch == 2

        assert system.execute(received) == set()

        assert system.run(first) == before

    def test_newer_dispatch_waits_for_its_instant(self, system: Deployment, queues: Proxy) -> None:
        system.upload("raise SystemExit(1)")
        job = system.register(retryPolicy={"initialDelayMs": 3_600_000})
        first = send(system, job)
        system.execute(system.receive())
        before = system.run(first)
        send(system, job, dispatch=2)
        queues.calls.clear()

        received = system.receive()
        assert system.execute(received) == {received[0]["MessageId"]}

        assert system.run(first) == before
        [wait] = hidings(queues)
        assert 3590 <= wait <= 3600

    def test_run_of_a_vanished_worker_is_taken_over(self, system: Deployment) -> None:
        system.upload("print('hi')")
        message = send(system, system.register())
        now = SystemClock().now()
        claim_run(
            system.runs,
            message,
            now - timedelta(minutes=2),
            lease_until=now - timedelta(minutes=1),
            worker="vanished",
        )

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.attempt, run.fence) == (RunState.SUCCEEDED, 2, 2)
        assert [(a.worker == "vanished", a.outcome) for a in run.attempts] == [
            (True, AttemptOutcome.WORKER_LOST),
            (False, AttemptOutcome.SUCCEEDED),
        ]

    def test_worker_that_lost_its_lease_records_nothing(
        self, system: Deployment, database: Proxy
    ) -> None:
        system.upload("print('mine')")
        message = send(system, system.register())

        def overtaken(real: Callable[..., Any], request: dict[str, Any]) -> Any:
            answer = real(**request)
            del database.instead["update_item"]
            run = system.run(message)
            now = SystemClock().now()
            to = run.taken_over(
                dispatch=1, token="o", worker="other", now=now, lease_until=now + HOUR
            )
            assert system.runs.advance(run, to).taken
            return answer

        database.instead["update_item"] = overtaken
        received = system.receive()

        assert system.execute(received) == {received[0]["MessageId"]}

        run = system.run(message)
        assert (run.state, run.worker, run.fence, run.stdout) == (
            RunState.RUNNING,
            "other",
            2,
            None,
        )

    def test_run_of_a_deleted_job_is_cancelled(self, system: Deployment) -> None:
        system.upload("print('hi')")
        message = send(system, system.register(jobId="a"))
        system.call("DELETE", "/v1/jobs/a")

        assert system.execute(system.receive()) == set()

        run = system.run(message)
        assert (run.state, run.attempt, run.reason) == (
            RunState.CANCELLED,
            0,
            "its job was deleted",
        )
