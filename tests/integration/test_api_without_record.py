"""What the API says of an occurrence that has no record of its run."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.attempt import AttemptOutcome, Result
from nextfire.domain.instants import isoformat, parse_instant
from nextfire.domain.job import Job
from nextfire.domain.run import Run
from tests.builders import claim_run
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem
from tests.integration.deployment import Deployment, message_for

NOW = parse_instant("2026-05-24T10:00:00Z")


class TestWithoutARecord:
    """The state of an occurrence that has no separate record."""

    def execution(self, job: Job, at: str) -> str:
        return f"/v1/executions/{job.run_key(parse_instant(at)).execution_id}"

    def test_occurrence_inside_a_range_record_answers_with_that(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a")
        first = parse_instant("2026-05-24T10:01:00Z")
        key = job.run_key(first)
        last = first + timedelta(minutes=59)
        clock.advance(hours=2)
        reason = "3600 s late; misfire policy SKIP"
        system.runs.skip(Run.skipped(key, reason, clock.now(), covered_to=last, covered=60))

        record = system.call("GET", f"/v1/executions/{key.execution_id}").document

        assert record == {
            "executionId": key.execution_id,
            "jobId": "a",
            "state": "SKIPPED",
            "trigger": "SCHEDULE",
            "scheduledAt": "2026-05-24T10:01:00Z",
            "range": {
                "from": "2026-05-24T10:01:00Z",
                "to": "2026-05-24T11:00:00Z",
                "count": 60,
            },
            "finishedAt": "2026-05-24T12:00:00Z",
            "reason": reason,
            "dispatch": 1,
            "attempt": 0,
            "attempts": [],
        }
        assert system.call("GET", "/v1/jobs/a/executions").document["items"] == [record]
        for inside in ("2026-05-24T10:02:00Z", "2026-05-24T11:00:00Z"):
            answer = system.call("GET", self.execution(job, inside))
            assert (answer.status, answer.document) == (200, record)
        after = system.call("GET", self.execution(job, "2026-05-24T11:01:00Z")).document
        assert after["state"] == "PENDING"

    def test_range_record_of_another_incarnation_or_job_is_not_it(
        self, system: Deployment, clock: Clock
    ) -> None:
        before = system.register(jobId="a")
        first = parse_instant("2026-05-24T10:01:00Z")
        key = before.run_key(first)
        last = first + timedelta(hours=9)
        system.runs.skip(Run.skipped(key, "r", clock.now(), covered_to=last, covered=540))
        system.call("DELETE", "/v1/jobs/a")
        after, other = system.register(jobId="a"), system.register(jobId="b")
        clock.advance(hours=1)

        for job in (after, other):
            answer = system.call("GET", self.execution(job, "2026-05-24T10:30:00Z"))
            assert answer.document["state"] == "PENDING"
        clock.advance(hours=-1)
        for job in (after, other):
            assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:30:00Z")), 404)

    def test_occurrence_that_no_executor_has_taken_is_pending(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=2)

        path = self.execution(job, "2026-05-24T10:02:00Z")
        answer = system.call("GET", path)

        assert (answer.status, answer.document) == (
            200,
            {
                "executionId": path.rpartition("/")[2],
                "jobId": "a",
                "state": "PENDING",
                "scheduledAt": "2026-05-24T10:02:00Z",
                "reason": "dispatched or about to be; no executor has taken it yet",
            },
        )
        assert system.call("GET", "/v1/jobs/a/executions").document == {"items": []}

    def test_pending_says_since_when_it_is_late(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=1, seconds=59, milliseconds=999)
        path = self.execution(job, "2026-05-24T10:01:00Z")

        young = system.call("GET", path).document["reason"]
        clock.advance(milliseconds=1)
        old = system.call("GET", path).document["reason"]

        assert young == "dispatched or about to be; no executor has taken it yet"
        assert old == (
            "due 60 s ago and not taken by an executor yet: it waits in its pool's queue, or in "
            "the table for room there, a quota or its job's earlier runs; or no watcher runs. "
            "See docs/guide/policies.md"
        )

    @pytest.mark.parametrize("overlap", ["ALLOW", "QUEUE", "SKIP", "REPLACE"])
    def test_pending_names_the_run_that_it_waits_for(
        self, system: Deployment, clock: Clock, overlap: str
    ) -> None:
        job = system.register(jobId="a", overlap=overlap)
        first = message_for(job, parse_instant("2026-05-24T10:01:00Z"))
        clock.advance(minutes=1)
        claim = claim_run(
            system.runs, first, clock.now(), lease_until=clock.now() + timedelta(hours=1)
        )
        clock.advance(minutes=1, seconds=1)
        path = self.execution(job, "2026-05-24T10:02:00Z")
        waits = (
            f"waits for {first.key.execution_id}, which has not ended (overlap policy {overlap})"
        )
        just_due = "dispatched or about to be; no executor has taken it yet"

        during = system.call("GET", path).document["reason"]
        failed = Result(AttemptOutcome.FAILED, "exit code 1")
        retry_at = clock.now() + timedelta(minutes=5)
        retrying = system.runs.advance(
            claim.run, claim.run.retrying(failed, clock.now(), not_before=retry_at)
        )
        meanwhile = system.call("GET", path).document["reason"]
        system.runs.stop(retrying.run, reason="for the test", now=clock.now())
        after = system.call("GET", path).document["reason"]

        assert during == (just_due if overlap == "ALLOW" else waits)
        assert (meanwhile, after) == (just_due, just_due)

    def test_what_is_not_due_yet_says_when_it_is(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        late = system.register(jobId="b", jitterSec=3600)
        at = "2026-05-24T10:04:00Z"

        answer = system.call("GET", self.execution(job, at))
        jittered = system.call("GET", self.execution(late, at))
        none = system.call("GET", self.execution(job, "2026-05-24T10:04:01Z"))
        clock.advance(minutes=1, seconds=30)
        system.call("POST", "/v1/jobs/a/pause")
        paused = system.call("GET", self.execution(job, at))
        system.call("DELETE", "/v1/jobs/a")
        deleted = system.call("GET", self.execution(job, at))

        for each in (answer, jittered, none, paused, deleted):
            assert_problem(each, 404)
        assert answer.document["detail"].endswith(" It is due at 2026-05-24T10:04:00Z.")
        due_at = isoformat(late.due_at(parse_instant(at)))
        assert jittered.document["detail"].endswith(f" It is due at {due_at}.")
        assert paused.document["detail"].endswith(
            " It would be due at 2026-05-24T10:04:00Z, but its job is paused."
        )
        for each in (none, deleted):
            assert each.document["detail"].endswith("List yours to see their ids.")

    def test_an_instant_without_an_occurrence_is_not_found_inside_a_range_either(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a", schedule="*/10 * * * *")
        first = parse_instant("2026-05-24T10:10:00Z")
        key = job.run_key(first)
        last = first + timedelta(minutes=50)
        clock.advance(hours=2)
        system.runs.skip(Run.skipped(key, "r", clock.now(), covered_to=last, covered=6))
        inside, none = "2026-05-24T10:20:00Z", "2026-05-24T10:21:00Z"

        def statuses() -> list[int]:
            return [system.call("GET", self.execution(job, at)).status for at in (inside, none)]

        assert statuses() == [200, 404]
        system.call("PATCH", "/v1/jobs/a", {"schedule": "0 0 1 1 *"})
        assert statuses() == [200, 404]
        # Occurrences of a forgotten version or a recreated job are unknown and not judged. Both
        # happen only after a watcher has sent everything that was due.
        system.forget_due(clock.now())
        for hour in range(9):
            clock.advance(seconds=1)
            system.call("PATCH", "/v1/jobs/a", {"schedule": f"0 {hour} 1 1 *"})
        assert statuses() == [200, 200]
        system.call("DELETE", "/v1/jobs/a")
        system.register(jobId="a")
        assert statuses() == [200, 200]

    @pytest.mark.parametrize(
        ("at", "what"),
        [
            ("2026-05-24T10:00:00Z", "the job's creation, which is not after itself"),
            ("2026-05-24T09:59:00Z", "before the job's creation"),
            ("2026-05-24T10:02:30Z", "none of its occurrences"),
            ("2026-05-24T10:02:00.001Z", "none of its occurrences"),
            ("2026-05-24T10:04:00Z", "not due yet"),
        ],
    )
    def test_an_instant_without_a_due_occurrence_is_not_found(
        self, system: Deployment, clock: Clock, at: str, what: str
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=3)

        assert system.call("GET", self.execution(job, "2026-05-24T10:03:00Z")).status == 200
        assert_problem(system.call("GET", self.execution(job, at)), 404)
        assert what

    def test_maxRuns_and_jitter_are_respected(self, system: Deployment, clock: Clock) -> None:  # noqa: N802
        two = system.register(jobId="a", maxRuns=2)
        late = system.register(jobId="b", jitterSec=3600)
        clock.advance(minutes=5)

        assert system.call("GET", self.execution(two, "2026-05-24T10:02:00Z")).status == 200
        assert system.call("GET", self.execution(two, "2026-05-24T10:03:00Z")).status == 404
        at = parse_instant("2026-05-24T10:01:00Z")
        clock.move_to(late.due_at(at) - timedelta(milliseconds=1))
        assert system.call("GET", self.execution(late, "2026-05-24T10:01:00Z")).status == 404
        clock.move_to(late.due_at(at))
        assert system.call("GET", self.execution(late, "2026-05-24T10:01:00Z")).status == 200

    def test_record_whose_time_is_over_is_not_pending(
        self, system: Deployment, clock: Clock
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(days=30, minutes=1)

        assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:01:00Z")), 404)
        assert system.call("GET", self.execution(job, "2026-05-24T10:02:00Z")).status == 200

    def test_of_a_paused_job(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a", misfire={"policy": "SKIP"})
        clock.advance(minutes=1, seconds=30)
        system.call("POST", "/v1/jobs/a/pause")
        clock.advance(minutes=5)

        before = system.call("GET", self.execution(job, "2026-05-24T10:01:00Z")).document
        during = system.call("GET", self.execution(job, "2026-05-24T10:02:00Z")).document

        assert before["reason"].startswith("due 330 s ago and not taken by an executor yet")
        assert during["reason"] == (
            "its job is paused; misfire policy SKIP decides when it is resumed"
        )

    @pytest.mark.parametrize("what", ["change", "deletion"])
    def test_of_a_pause_that_a_change_ended(
        self, system: Deployment, clock: Clock, what: str
    ) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=1, seconds=30)
        system.call("POST", "/v1/jobs/a/pause")
        clock.advance(minutes=5)
        if what == "change":
            system.call("PATCH", "/v1/jobs/a", {"schedule": "0 4 * * *"})
        else:
            system.call("DELETE", "/v1/jobs/a")

        answer = system.call("GET", self.execution(job, "2026-05-24T10:02:00Z"))

        assert answer.status == 200
        assert answer.document["reason"] == (
            "due during a pause that a change of the job ended; will be SKIPPED shortly"
        )
        assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:07:00Z")), 404)

    def test_of_the_version_before_a_change(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=2, seconds=30)
        system.call("PATCH", "/v1/jobs/a", {"schedule": "*/5 * * * *"})
        clock.advance(minutes=5)
        system.call("PATCH", "/v1/jobs/a", {"schedule": "0 * * * *"})

        statuses = {
            minute: system.call("GET", self.execution(job, f"2026-05-24T10:0{minute}:00Z")).status
            for minute in range(1, 8)
        }

        assert statuses == {1: 200, 2: 200, 3: 404, 4: 404, 5: 200, 6: 404, 7: 404}

    def test_of_a_job_that_was_made_again(self, system: Deployment, clock: Clock) -> None:
        before = system.register(jobId="a")
        system.call("DELETE", "/v1/jobs/a")
        after = system.register(jobId="a")
        clock.advance(minutes=1)

        assert_problem(system.call("GET", self.execution(before, "2026-05-24T10:01:00Z")), 404)
        assert system.call("GET", self.execution(after, "2026-05-24T10:01:00Z")).status == 200

    def test_of_a_deleted_job(self, system: Deployment, clock: Clock) -> None:
        job = system.register(jobId="a")
        clock.advance(minutes=1, seconds=30)
        system.call("DELETE", "/v1/jobs/a")
        clock.advance(minutes=1)

        assert system.call("GET", self.execution(job, "2026-05-24T10:01:00Z")).status == 200
        assert_problem(system.call("GET", self.execution(job, "2026-05-24T10:02:00Z")), 404)
