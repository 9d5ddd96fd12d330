"""Checks of records at rest: each request did what its answer said, once."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from nextfire.domain.ids import RunKey, parse_execution_id
from nextfire.domain.job import Job
from nextfire.domain.recurrence import occurrences
from nextfire.domain.run import Run, RunState, Trigger
from tests.simulation.redriven import awaits_parents

if TYPE_CHECKING:
    from tests.simulation.history import History

_MOMENT = timedelta(milliseconds=1)


def is_of(run: RunKey, job: Job) -> bool:
    return (run.job, run.uid) == (job.key, job.uid)


def check_cancelled(history: History) -> None:
    """Cancelled runs were not retried unless redriven. A run may have succeeded before the
    cancel was noticed.
    """
    for key, attempts in history.cancelled.items():
        run = history.stores.runs.items[key]
        if run.restarted:
            continue
        assert run.state in {RunState.CANCELLED, RunState.SUCCEEDED}, (
            f"{key.execution_id} was cancelled and is {run.state}"
        )
        assert len(run.attempts) <= attempts, f"{key.execution_id} was cancelled, but retried"


def check_redriven(history: History) -> None:
    """Redriven runs were sent again."""
    for key, dispatch in history.redriven.items():
        run = history.stores.runs.items[key]
        assert run.restarted, f"{key.execution_id} was redriven, but its record does not show it"
        assert run.dispatch >= dispatch, f"{key.execution_id}: dispatch {dispatch} was lost"
        tried = run.attempt > run.attempt_base
        # Cancelled again; or an attempt that its host could not make is not repeated so late.
        given_up = run.state is RunState.CANCELLED or "; not repeated: " in (run.reason or "")
        # Its attempts are from before, if another redrive makes it follow its parents.
        assert tried or given_up or awaits_parents(run), f"{key.execution_id} was not redriven"


def check_hastened(history: History) -> None:
    """Runs that were to start before their retry was due were sent again."""
    for key, dispatch in history.hastened.items():
        run = history.stores.runs.items[key]
        assert run.dispatch >= dispatch, f"{key.execution_id}: dispatch {dispatch} was lost"


def check_asked(history: History) -> None:
    """Each manual run was created once, however often it was requested, with its payload."""
    runs = history.stores.runs.items.values()
    for number, asked in enumerate(history.asked, 1):
        made = [run for run in runs if run.request in asked.requests]
        assert len(asked.requests) <= 1, f"request {number} used the tokens {asked.requests}"
        assert len({*asked.answers}) <= 1, f"request {number} got the answers {asked.answers}"
        assert len(made) <= 1, f"request {number} made {[r.key.run_id for r in made]}"
        assert len(made) >= bool(asked.answers), f"request {number} was answered, but made nothing"
        for run in made:
            name = run.key.execution_id
            answers = [*asked.answers, name]
            assert answers[0] == name, f"request {number} was answered {answers[0]}, not {name}"
            assert run.key.job == asked.job
            _check_payload(history, run, asked.payload)


def _check_payload(history: History, run: Run, payload: str | None) -> None:
    name = run.key.execution_id
    for started in history.system.started:
        if started.execution_id == name and payload is not None:
            assert started.payload == payload, f"{name} got the payload {started.payload}"


def check_keyed(history: History) -> None:
    """Requests under an idempotency key created one job, once, however often they were repeated
    and whatever happened to the job. All answers were equal, and of two bodies one was refused.
    """
    for keyed in history.keyed:
        made = {of: stored for of, stored in history.ever.items() if of[1] in keyed.uids}
        answered = {body: answers for body, answers in keyed.answers.items() if answers}
        assert len(keyed.uids) <= 1, f"{keyed.name} used the uids {keyed.uids}"
        assert len(answered) <= 1, f"{keyed.name}: two bodies were answered, {answered}"
        assert len(made) <= 1, f"{keyed.name} made {[*made]}"
        assert len(made) >= len(answered), f"{keyed.name} was answered, but made nothing"
        for (key, uid), stored in made.items():
            first = [each.job for each in stored if each.job.revision == 1]
            assert len(first) == 1, f"{keyed.name} made {key.job_id} {len(first)} times"
            assert key.tenant == keyed.tenant, f"{keyed.name} made another tenant's job"
            for body, answers in answered.items():
                assert len({*answers}) == 1, f"{keyed.name} was answered {answers}"
                assert answers[0].startswith(f"{key.job_id} {uid},"), f"{keyed.name}: {answers[0]}"
                wanted = keyed.bodies[body]
                assert first[0].definition == wanted, f"{keyed.name} made the job of another body"


def check_skipped(history: History) -> None:
    """Skipped occurrences never ran unless the skip was undone. Skips and undos happened only
    to jobs for which they were requested.
    """
    started = {each.execution_id for each in history.system.started}
    for key in history.skipped - history.unskipped:
        run = history.stores.runs.items.get(key)
        assert run is not None, f"{key.execution_id} was to be skipped, but has no record"
        assert run.skip_requested, f"{key.execution_id} was to be skipped, but is {run.state}"
        assert key.execution_id not in started, f"{key.execution_id} was skipped, but ran"
    for key in history.unskipped:
        run = history.stores.runs.items.get(key)
        assert key.job in history.asked_to_unskip, f"{key.execution_id}: undone without a request"
        assert run is None or not run.skip_requested, (
            f"{key.execution_id} is skipped, although that was undone"
        )
    for key, run in history.stores.runs.items.items():
        asked = not run.skip_requested or key.job in history.asked_to_skip
        assert asked, f"{key.execution_id} is skipped without a request"


def check_drained(history: History) -> None:
    """A job reported as drained began no further run of before the drain, unless it was
    redriven.
    """
    for job, reported_at in history.drained:
        until = job.effective_from
        for started in history.system.started:
            key = parse_execution_id(job.key.tenant, started.execution_id)
            if not is_of(key, job) or started.at <= reported_at or key in history.vanished:
                continue
            run = history.stores.runs.items[key]
            of_before = run.trigger is Trigger.SCHEDULE and key.scheduled_at <= until
            assert not of_before or run.restarted, (
                f"{key.execution_id} began at {started.at}; its job drained at {reported_at}"
            )


def check_backfilled(history: History) -> None:
    """Each occurrence of an acknowledged backfill has its record, unless the backfill was
    stopped: by a request, a change of the schedule, a pause or a deletion.
    """
    for name, job in history.backfills.items():
        if job is None or job.backfill is None:
            continue
        now = history.stores.jobs.items.get(job.key)
        if now is None:
            continue  # it ended, and was removed after its retention
        assert now.backfilling is None, f"{name} still runs, but the system is at rest"
        versions = {each.job.schedule_version for each in history.ever[job.key, job.uid]}
        stopped = any(
            each.job.backfill is not None
            and (each.job.backfill.backfill_id, each.job.backfill.version) == (name, 0)
            for each in history.ever[job.key, job.uid]
        )
        if stopped or max(versions) > job.schedule_version or now.uid != job.uid:
            continue
        asked = job.backfill
        spans = [
            (run.key.scheduled_at, run.covers_until)
            for key, run in history.stores.runs.items.items()
            if is_of(key, job)
        ]
        for each in occurrences(job.past_schedule(asked.first), asked.first - _MOMENT):
            if each.at > asked.last:
                break
            covered = any(first <= each.at <= last for first, last in spans)
            key = job.run_key(each.at)
            assert covered, f"{key.execution_id} is not covered by {name}"
