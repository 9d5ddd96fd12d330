"""The contract of `JobStore`: creations, changes and ends of jobs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from nextfire.domain.occurrences import JobState
from nextfire.domain.ports.jobs import JobStore
from tests.builders import NOON, a_fire, a_job, at
from tests.integration.races import ROUNDS, at_once
from tests.integration.test_contract_job_store.conftest import Held, changed


def test_a_job_is_stored_with_its_first_due_entry(held: Held) -> None:
    job = a_job(payload={"n": 1.5, "ü": [None, True]}, labels={"team": "data"}, timeoutSec=7)
    first = a_fire(job, at("13:00"))

    assert held.store.create(job, first, NOON) is None

    assert held.store.get(job.key) == job
    assert held.entries() == [first]


def test_a_job_without_an_entry_is_stored_alone(held: Held) -> None:
    job = a_job()
    assert held.store.create(job, None, NOON) is None
    assert held.store.get(job.key) == job
    assert held.entries() == []


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.COMPLETED])
def test_the_id_of_a_living_job_is_taken_and_nothing_is_written(
    held: Held, state: JobState
) -> None:
    living = a_job(state=state)
    held.store.create(living, None, NOON)
    rival = a_job(uid="uid00002", schedule="5 * * * *")

    assert held.store.create(rival, a_fire(rival, at("13:00")), NOON) == living

    assert held.store.get(living.key) == living
    assert held.entries() == []


def test_a_repeated_creation_finds_its_own_job(store: JobStore) -> None:
    job = a_job()
    assert store.create(job, a_fire(job, at("13:00")), NOON) is None
    assert store.create(job, a_fire(job, at("13:00")), NOON) == job


def test_the_id_of_a_cancelled_job_starts_clean(held: Held) -> None:
    old = a_job(uid="uid00001", state=JobState.CANCELLED)
    held.store.create(old, None, NOON)
    new = a_job(uid="uid00002", since=at("12:30"))
    first = a_fire(new, at("13:00"))

    assert held.store.create(new, first, at("12:30")) == old
    assert held.store.create(new, first, at("12:30"), former=a_job(uid="uid00003")) == old
    assert (held.store.get(old.key), held.entries()) == (old, [])
    assert held.store.create(new, first, at("12:30"), former=old) is None
    assert held.store.create(new, first, at("12:30"), former=old) == new

    assert held.store.get(old.key) == new
    assert [entry.uid for entry in held.entries()] == ["uid00002"]


def test_a_former_job_that_lives_keeps_its_id(held: Held) -> None:
    living = a_job(uid="uid00001")
    held.store.create(living, None, NOON)
    rival = a_job(uid="uid00002")

    assert held.store.create(rival, None, NOON, former=living) == living
    assert held.store.get(living.key) == living


def test_of_twenty_concurrent_creations_one_has_the_id(held: Held) -> None:
    rivals = [a_job(uid=f"uid{n:05d}") for n in range(20)]

    with ThreadPoolExecutor(20) as threads:
        answers = list(
            threads.map(lambda job: held.store.create(job, a_fire(job, at("13:00")), NOON), rivals)
        )

    assert answers.count(None) == 1
    winner = rivals[answers.index(None)]
    assert held.store.get(winner.key) == winner
    assert [entry.uid for entry in held.entries()] == [winner.uid]
    assert all(answer == winner for answer in answers if answer is not None)


def test_the_next_revision_replaces_its_predecessor(held: Held) -> None:
    job = a_job()
    held.store.create(job, None, NOON)
    second = changed(job, timeoutSec=9)

    assert held.store.update(second, a_fire(second, at("14:00")), at("12:30"))

    assert held.store.get(job.key) == second
    assert [entry.at for entry in held.entries()] == [at("14:00")]


def test_a_change_that_came_second_changes_nothing(held: Held) -> None:
    job = a_job()
    held.store.create(job, None, NOON)
    first, second = changed(job, timeoutSec=9), changed(job, timeoutSec=10)

    assert held.store.update(first, None, at("12:30"))
    assert not held.store.update(second, a_fire(second, at("14:00")), at("12:30"))

    assert held.store.get(job.key) == first
    assert held.entries() == []


def test_a_repeated_change_finds_its_own_success(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)
    second = changed(job, timeoutSec=9)

    assert store.update(second, None, at("12:30"))
    assert store.update(second, None, at("12:30"))


def test_a_change_of_another_creation_or_of_nothing_is_refused(store: JobStore) -> None:
    job = a_job()
    assert not store.update(changed(job), None, NOON)

    store.create(job, None, NOON)
    assert not store.update(changed(replace(job, uid="uid00002")), None, NOON)
    assert store.get(job.key) == job


def test_of_twenty_concurrent_changes_one_is_made(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)

    with ThreadPoolExecutor(20) as threads:
        made = list(
            threads.map(
                lambda n: store.update(changed(job, timeoutSec=n + 1), None, NOON), range(20)
            )
        )

    assert made.count(True) == 1
    stored = store.get(job.key)
    assert stored is not None
    assert (stored.revision, stored.definition.timeout_sec) == (2, made.index(True) + 1)


def test_an_executor_pauses_an_active_job_as_a_user_does(store: JobStore) -> None:
    job = a_job(schedule="*/5 * * * *", type="CRON")
    store.create(job, None, NOON)

    assert store.pause(job, "410 Gone", at("13:00"))
    assert not store.pause(job, "410 Gone", at("13:01"))

    paused = replace(job.paused(at("13:00"), "410 Gone"), revision=2, updated_at=at("13:00"))
    assert store.get(job.key) == paused
    assert not store.pause(paused, "404 Not Found", at("13:02")), "it is not ACTIVE"
    assert store.get(job.key) == paused


def test_a_job_that_changed_meanwhile_is_not_paused_by_an_executor(store: JobStore) -> None:
    job = a_job()
    assert not store.pause(job, "410 Gone", NOON)
    assert store.get(job.key) is None

    store.create(job, None, NOON)
    now = changed(job, timeoutSec=9)
    store.update(now, None, NOON)

    assert not store.pause(job, "410 Gone", NOON)
    assert store.get(job.key) == now
    same_revision = replace(now, uid="another")
    assert not store.pause(same_revision, "410 Gone", NOON), "deleted and created again"


def test_an_active_job_is_completed_once(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)

    assert store.complete(job, at("13:00"))
    assert not store.complete(job, at("13:01"))

    stored = store.get(job.key)
    assert stored == replace(job, state=JobState.COMPLETED, revision=2, updated_at=at("13:00"))


def test_a_job_that_was_rescheduled_recreated_or_cancelled_is_not_completed(
    store: JobStore,
) -> None:
    job = a_job()
    assert not store.complete(job, NOON)
    assert store.get(job.key) is None

    store.create(job, None, NOON)
    assert not store.complete(replace(job, schedule_version=job.schedule_version - 1), NOON)
    assert not store.complete(replace(job, uid="uid00002"), NOON)
    assert store.get(job.key) == job

    cancelled = replace(changed(job), state=JobState.CANCELLED)
    store.update(cancelled, None, NOON)
    assert not store.complete(job, NOON)
    assert store.get(job.key) == cancelled


def test_completing_does_not_need_the_latest_revision(store: JobStore) -> None:
    job = a_job()
    store.create(job, None, NOON)
    store.update(changed(job, timeoutSec=9), None, NOON)

    assert store.complete(job, at("13:00"))

    stored = store.get(job.key)
    assert stored is not None
    assert (stored.state, stored.revision, stored.definition.timeout_sec) == (
        JobState.COMPLETED,
        3,
        9,
    )


def test_a_concurrent_change_and_completion_leave_a_consistent_job(store: JobStore) -> None:
    for n in ROUNDS:
        job = a_job(f"job{n}")
        store.create(job, None, NOON)
        done = at_once(
            partial(store.update, changed(job, timeoutSec=9), None, at("12:30")),
            partial(store.complete, job, at("13:00")),
        )

        stored = store.get(job.key)
        assert stored is not None
        assert done[1], "still of the same version"
        assert (stored.state, stored.revision) == (JobState.COMPLETED, 1 + sum(done))
        assert (stored.definition.timeout_sec == 9) == done[0]


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.CANCELLED])
def test_an_ended_job_is_removed_once_and_its_id_is_free(store: JobStore, state: JobState) -> None:
    job = replace(a_job(uid="uid00001"), state=state)
    store.create(job, None, NOON)

    assert store.remove(job)

    assert store.get(job.key) is None
    assert not store.remove(job)
    again = a_job(uid="uid00002")
    assert store.create(again, None, NOON) is None
    assert not store.remove(job)
    assert store.get(job.key) == again


def test_a_job_that_changed_or_runs_is_not_removed(store: JobStore) -> None:
    job = a_job(uid="uid00001")
    store.create(job, None, NOON)
    assert not store.remove(job)
    ended = replace(job, revision=2, state=JobState.COMPLETED)
    assert store.update(ended, None, NOON)

    assert not store.remove(replace(ended, revision=1))
    assert not store.remove(replace(ended, uid="uid00002"))

    assert store.get(job.key) == ended
