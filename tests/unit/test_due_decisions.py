"""Decisions about due entries, case by case, with their reasons."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from nextfire.domain import due_decisions
from nextfire.domain.due import FireEntry
from nextfire.domain.due_decisions import (
    ORPHAN_AGE,
    Cover,
    Decision,
    Drop,
    Fire,
    Leave,
    Resend,
    decide_due,
)
from nextfire.domain.instants import MINUTE
from nextfire.domain.job import Job
from nextfire.domain.message import MAX_RANGES
from nextfire.domain.misfire import MISFIRE_AFTER, decide_misfire
from nextfire.domain.missed import Missed
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import MisfirePolicy
from nextfire.domain.run import Trigger
from tests.builders import (
    NOON,
    RUN_ALL,
    RUN_LATEST,
    SKIP,
    a_definition,
    a_fire,
    a_job,
    a_retry,
    at,
    run_key,
)

JOB = a_job(since=at("11:30"))
LATER = at("12:00:01")


def test_the_present_version_fires_with_a_successor() -> None:
    decision = decide_due(a_fire(JOB, NOON), JOB, LATER)

    assert isinstance(decision, Fire)
    assert (decision.run, decision.pool) == (run_key(), "default")
    assert decision.successor == a_fire(JOB, at("13:00"))
    assert decision.reason


def test_the_successor_follows_the_occurrence_not_the_clock() -> None:
    job = a_job(since=JOB.effective_from, misfire=RUN_ALL)

    decision = decide_due(a_fire(job, NOON), job, at("18:30"))

    assert isinstance(decision, Fire)
    assert decision.successor == a_fire(JOB, at("13:00"))


def test_the_last_occurrence_fires_without_a_successor() -> None:
    job = a_job(since=at("11:30"), type="ONCE", schedule="2026-05-24T12:00:00Z")

    decision = decide_due(a_fire(job, NOON), job, LATER)

    assert isinstance(decision, Fire)
    assert decision.successor is None


@pytest.mark.parametrize("changed_at", ["12:00", "12:00:00.001", "15:00"])
def test_an_older_version_owns_its_occurrences_up_to_the_change(changed_at: str) -> None:
    changed = replace(JOB, schedule_version=JOB.schedule_version + 1, effective_from=at(changed_at))

    decision = decide_due(a_fire(JOB, NOON), changed, at("15:00"))

    assert isinstance(decision, Fire)
    assert (decision.run, decision.successor) == (run_key(), None)


def test_an_older_version_owns_nothing_after_the_change() -> None:
    changed = replace(
        JOB, schedule_version=JOB.schedule_version + 1, effective_from=at("11:59:59.999")
    )

    decision = decide_due(a_fire(JOB, NOON), changed, LATER)

    assert isinstance(decision, Drop)
    assert decision.reason == f"replaced by schedule version {changed.schedule_version}"


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.COMPLETED, JobState.CANCELLED])
def test_the_state_of_a_job_does_not_matter_its_version_does(state: JobState) -> None:
    decision = decide_due(a_fire(JOB, NOON), replace(JOB, state=state), LATER)

    assert isinstance(decision, Fire)


@pytest.mark.parametrize(
    ("job", "version", "reason"),
    [
        (None, JOB.schedule_version, "job not found"),
        (replace(JOB, uid="uid00002"), JOB.schedule_version, "job not found"),
        (JOB, JOB.schedule_version + 1, "the job has no schedule version"),
    ],
    ids=["absent", "another creation", "newer version"],
)
def test_an_orphaned_entry_is_kept_for_a_minute_then_dropped(
    job: object, version: int, reason: str
) -> None:
    entry = a_fire(JOB, NOON, version=version)

    left = decide_due(entry, job, NOON + ORPHAN_AGE - timedelta(milliseconds=1))  # type: ignore[arg-type]
    dropped = decide_due(entry, job, NOON + ORPHAN_AGE)  # type: ignore[arg-type]

    assert isinstance(left, Leave)
    assert isinstance(dropped, Drop)
    assert left.reason.startswith(reason)
    assert dropped.reason.endswith("60 s after it was due")


def test_an_occurrence_due_before_the_job_was_recreated_is_recorded() -> None:
    """The run is sent; the executor finds a newer creation of the job and records CANCELLED."""
    entry = a_fire(JOB, NOON)

    def decided(created_at: datetime) -> Decision:
        again = replace(JOB, uid="uid00002", created_at=created_at)
        return decide_due(entry, again, NOON + ORPHAN_AGE)

    sent = decided(NOON)
    assert isinstance(sent, Fire)
    assert (sent.run, sent.successor) == (run_key(), None)
    assert isinstance(decided(NOON - timedelta(milliseconds=1)), Drop)


@pytest.mark.parametrize("state", [JobState.ACTIVE, JobState.CANCELLED])
def test_entries_of_a_former_version_respect_overlap_unless_the_job_was_deleted(
    state: JobState,
) -> None:
    job = a_job(since=at("11:30"), overlap="QUEUE", misfire=SKIP)
    changed = replace(job.with_new_version(at("14:30")), state=state)

    missed = decide_due(a_fire(job, NOON), changed, at("15:00"))
    ordinary = decide_due(a_fire(job, NOON), changed, LATER)

    deleted = state is JobState.CANCELLED
    assert isinstance(missed, Cover)
    assert missed.exclusive is not deleted
    assert isinstance(ordinary, Fire)
    assert (ordinary.owner is None) is deleted


def test_a_forgotten_version_owns_nothing_that_a_later_one_does() -> None:
    changed = JOB.with_new_version(NOON - 2 * MINUTE).with_new_version(NOON + MINUTE)
    forgotten = replace(changed, replaced=changed.replaced[1:])

    before = decide_due(a_fire(JOB, NOON - 3 * MINUTE), forgotten, LATER)
    after = decide_due(a_fire(JOB, NOON), forgotten, LATER)

    assert isinstance(before, Fire)
    assert before.successor is None
    assert isinstance(after, Drop)


def test_a_restored_job_does_not_reuse_schedule_versions() -> None:
    """Entries of the later version may still be in the due table."""
    since = JOB.with_new_version(NOON)

    assert JOB.with_new_version(NOON + MINUTE).schedule_version > since.schedule_version


@pytest.mark.parametrize("job", [None, JOB, replace(JOB, uid="uid00002")])
def test_a_retry_is_never_checked(job: object) -> None:
    decision = decide_due(
        a_retry(run_key(), NOON, dispatch=4, pool="batch"),
        job,  # type: ignore[arg-type]
        at("15:00"),
    )

    assert decision == Resend(run_key(), 4, "batch", Trigger.SCHEDULE)
    assert decision.reason == "retry is due"


def test_a_manual_run_ignores_runs_of_a_recreated_job() -> None:
    """It would wait for runs of the new job, or be replaced by one of them."""
    entry = replace(a_retry(run_key(), NOON, dispatch=1), trigger=Trigger.MANUAL)

    mine = decide_due(entry, JOB, NOON)
    another = decide_due(entry, replace(JOB, uid="uid00002"), NOON)
    assert isinstance(mine, Resend)
    assert isinstance(another, Resend)
    assert (mine.owner, another.owner) == (JOB, None)


# Misfires


def entry_for(job: Job, time: str) -> FireEntry:
    return job.fire_entry(at(time), 1)


LATE_BY_2_H = "14:00:30"
"""Two hours after the 12:00 of an hourly job: 13:00 and 14:00 are due as well."""


@pytest.mark.parametrize(
    ("policy", "now", "missed"),
    [
        ("RUN_ALL", "12:01:00", None),
        ("RUN_ALL", LATE_BY_2_H, None),
        ("RUN_LATEST", "12:01:00", None),
        ("RUN_LATEST", "12:01:00.001", None),  # the latest: its successor is not due yet
        ("RUN_LATEST", "12:59:59.999", None),
        ("RUN_LATEST", "13:00:00", Missed(at("13:00:00"), except_latest=True)),
        ("RUN_LATEST", LATE_BY_2_H, Missed(at(LATE_BY_2_H), except_latest=True)),
        ("SKIP", "12:01:00", None),
        ("SKIP", "12:01:00.001", Missed(at("12:00:00.001"))),
        ("SKIP", LATE_BY_2_H, Missed(at("13:59:30"))),
    ],
)
def test_a_misfire_policy_decides_over_what_is_more_than_a_minute_late(
    policy: str, now: str, missed: Missed | None
) -> None:
    job = a_job(since=at("11:30"), misfire={"policy": policy})
    entry = entry_for(job, "12:00")

    found, reason = decide_misfire(entry, job, job.successor(entry), at(now))

    assert found == missed
    late = at(now) - NOON > MISFIRE_AFTER
    assert (reason == "occurrence is due") is not late
    assert not late or f"misfire policy {policy}" in reason


@pytest.mark.parametrize(
    ("policy", "occurs_at", "missed"),
    [
        ("RUN_ALL", "12:00", None),
        ("RUN_LATEST", "12:00", Missed(at("12:50:30"), except_latest=True)),
        ("RUN_LATEST", "12:50", None),
        ("SKIP", "12:00", Missed(at("12:50:29"))),
        ("SKIP", "12:50", Missed(at("12:50:29"))),
    ],
)
def test_what_was_due_in_a_pause_is_late_however_short_it_was(
    policy: str, occurs_at: str, missed: Missed | None
) -> None:
    job = a_job(since=at("11:30"), schedule="*/10 * * * *", misfire={"policy": policy})
    job = job.paused(at("11:55"), None).resumed(at("12:50:29"))
    entry = entry_for(job, occurs_at)

    found, reason = decide_misfire(entry, job, job.successor(entry), at("12:50:30"))

    assert found == missed
    assert reason.startswith(f"due during a pause; misfire policy {policy}")


@pytest.mark.parametrize("policy", MisfirePolicy)
@pytest.mark.parametrize(("now", "inside"), [("12:00:20", True), ("12:00:20.001", False)])
def test_the_relevancy_window_goes_before_every_policy(
    policy: str, now: str, *, inside: bool
) -> None:
    job = a_job(since=at("11:30"), misfire={"policy": policy, "relevancyWindowSec": 20})
    entry = entry_for(job, "12:00")

    missed, reason = decide_misfire(entry, job, job.successor(entry), at(now))

    assert missed == (None if inside else Missed(at(now) - timedelta(seconds=20)))
    assert ("relevancyWindowSec is 20 s" in reason) is not inside


def test_a_window_wider_than_the_lateness_leaves_it_to_the_policy() -> None:
    job = a_job(since=at("11:30"), misfire=SKIP | {"relevancyWindowSec": 86_400})
    entry = entry_for(job, "12:00")

    missed, reason = decide_misfire(entry, job, job.successor(entry), at("13:30"))

    assert missed == Missed(at("13:29"))
    assert "misfire policy SKIP" in reason


def test_jittered_occurrences_are_late_only_after_the_jitter_width() -> None:
    """An earlier occurrence may be due later because of jitter, and the chain waits for it."""
    job = a_job(since=at("11:30"), uid="uid00003", misfire=SKIP, jitterSec=600)
    entry = entry_for(job, "12:00")
    assert entry.at < at("12:09")

    in_time, _ = decide_misfire(entry, job, job.successor(entry), at("12:11:00"))
    late, _ = decide_misfire(entry, job, job.successor(entry), at("12:11:00.001"))

    assert in_time is None
    assert late == Missed(at("12:00:00.001")), "only occurrences that are late for any jitter"


@pytest.mark.parametrize("policy", MisfirePolicy)
def test_what_is_covered_is_of_the_entry_s_version(policy: MisfirePolicy) -> None:
    old = a_job(since=at("11:30"), misfire={"policy": policy})
    new = old.with_new_version(at("12:30"))
    new = replace(new, revision=2, definition=a_definition("30 * * * *", misfire=SKIP))

    decision = decide_due(entry_for(old, "12:00"), new, at("15:00"))

    # `misfire` is not part of the schedule version: the current value of the job applies.
    assert isinstance(decision, Cover)
    assert (decision.owner.definition.schedule, decision.owned_until) == ("0 * * * *", at("12:30"))
    assert decision.missed == Missed(at("14:59"))


def test_the_last_occurrence_of_a_former_version_is_its_latest() -> None:
    old = a_job(since=at("11:30"))
    new = replace(old.with_new_version(at("12:30")), definition=a_definition("30 * * * *"))

    decision = decide_due(entry_for(old, "12:00"), new, at("15:00"))

    assert isinstance(decision, Fire)
    assert decision.successor is None
    assert "the latest" in decision.reason


# Occurrences missed before the run that is sent


def sent_late(job: Job, now: str, *, owner: Job | None = None) -> Fire:
    """The decision about the 12:00 of *owner*; *owner* defaults to *job*."""
    decision = decide_due(entry_for(owner or job, "12:00"), job, at(now))
    assert isinstance(decision, Fire)
    assert (decision.cover_first is not None) == bool(decision.missed)
    return decision


def rows(decision: Fire) -> list[str]:
    return [
        f"{row.first:%H:%M}-{row.last:%H:%M} ({row.count}) {row.reason.partition('; ')[2]}"
        for row in decision.missed
    ]


def test_run_latest_sends_the_latest_and_reports_those_before_it() -> None:
    job = a_job(since=at("11:30"), misfire=RUN_LATEST)

    decision = sent_late(job, "15:30")

    assert rows(decision) == ["12:00-14:00 (3) misfire policy RUN_LATEST"]
    assert decision.missed[0].version == job.schedule_version
    assert (decision.run, decision.due_at) == (run_key(at("15:00")), at("15:00"))
    assert decision.successor == a_fire(job, at("16:00"))
    assert decision.reason == "1800 s late; misfire policy RUN_LATEST: the latest"


def test_skip_sends_what_is_fresh_and_reports_what_is_late() -> None:
    decision = sent_late(a_job(since=at("11:30"), misfire=SKIP), "14:00:30")

    assert rows(decision) == ["12:00-13:00 (2) misfire policy SKIP"]
    assert (decision.run, decision.reason) == (run_key(at("14:00")), "occurrence is due")


def test_skip_sends_nothing_where_nothing_is_fresh() -> None:
    decision = decide_due(entry_for(job := a_job(misfire=SKIP), "12:00"), job, at("14:30"))

    assert isinstance(decision, Cover)
    assert (decision.run, decision.next_at) == (run_key(), at("15:00"))


def test_the_relevancy_window_and_run_latest_make_two_rows() -> None:
    misfire = RUN_LATEST | {"relevancyWindowSec": 7200}

    decision = sent_late(a_job(since=at("11:30"), misfire=misfire), "15:30")

    assert rows(decision) == [
        "12:00-13:00 (2) relevancyWindowSec is 7200 s",
        "14:00-14:00 (1) misfire policy RUN_LATEST",
    ]
    assert decision.run == run_key(at("15:00"))


def test_run_all_misses_nothing() -> None:
    decision = sent_late(a_job(since=at("11:30"), misfire=RUN_ALL), "15:30")

    assert (rows(decision), decision.run) == ([], run_key())


@pytest.mark.parametrize(
    ("skips", "expected"),
    [
        (["13:00"], ["12:00-12:00 (1)", "14:00-14:00 (1)"]),
        (["14:00"], ["12:00-13:00 (2)"]),
        (["13:00", "14:00"], ["12:00-12:00 (1)"]),
        (["12:30", "15:00"], ["12:00-14:00 (3)"]),
    ],
    ids=["middle", "last", "two", "none of them"],
)
def test_ranges_leave_out_occurrences_that_a_user_skipped(
    skips: list[str], expected: list[str]
) -> None:
    """They have records already. Without the job's schedule no executor could leave them out."""
    job = a_job(since=at("11:30"), misfire=RUN_LATEST)
    skipping = replace(job, skips=tuple(map(at, skips)))

    decision = sent_late(skipping, "15:30")

    assert [row.partition(") ")[0] + ")" for row in rows(decision)] == expected
    assert decision.run == run_key(at("15:00"))


def test_the_lateness_of_a_skipped_occurrence_does_not_count_for_the_next() -> None:
    job = replace(a_job(since=at("11:30"), misfire=RUN_LATEST), skips=(NOON,))

    decision = sent_late(job, "15:30")

    assert (decision.run, decision.missed) == (run_key(), ())
    assert decision.successor == a_fire(job, at("13:00"))


def test_ranges_between_skips_keep_their_position_in_the_schedule() -> None:
    """A job with `maxRuns` counts its occurrences, whether they are skipped or not."""
    job = replace(a_job(since=at("11:30"), misfire=RUN_LATEST, maxRuns=9), skips=(at("13:00"),))

    decision = sent_late(job, "16:30")

    assert [(row.first, row.ordinal, row.count) for row in decision.missed] == [
        (at("12:00"), 1, 1),
        (at("14:00"), 3, 2),
    ]


@pytest.mark.parametrize("most", [MAX_RANGES, 1])
def test_ranges_that_do_not_fit_in_a_message_are_covered_first(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The decision has two ranges of missed occurrences."""
    monkeypatch.setattr(due_decisions, "MAX_RANGES", most)
    job = a_job(since=at("11:30"), misfire=RUN_LATEST | {"relevancyWindowSec": 7200})

    decision = decide_due(entry_for(job, "12:00"), job, at("15:30"))

    if most >= 2:
        assert isinstance(decision, Fire)
    else:
        assert isinstance(decision, Cover)
        assert decision.missed == Missed(at("13:30"))
        assert decision.next_at == at("15:00")


def test_the_last_of_a_version_that_ended_is_sent_and_no_later_one() -> None:
    old = a_job(since=at("11:30"), misfire=RUN_LATEST)
    new = replace(old.with_new_version(at("14:30")), definition=a_definition("30 * * * *"))

    decision = sent_late(new, "18:15", owner=old)

    assert rows(decision) == ["12:00-13:00 (2) misfire policy RUN_LATEST"]
    assert {row.version for row in decision.missed} == {old.schedule_version}
    assert (decision.run, decision.successor) == (run_key(at("14:00")), None)


def test_missed_occurrences_of_a_deleted_job_are_reported_without_waiting() -> None:
    job = a_job(since=at("11:30"), overlap="QUEUE", misfire=RUN_LATEST)
    deleted = replace(job.with_new_version(at("14:30")), state=JobState.CANCELLED)

    decision = sent_late(deleted, "18:15", owner=job)

    assert rows(decision) == ["12:00-13:00 (2) misfire policy RUN_LATEST"]
    assert (decision.run, decision.owner) == (run_key(at("14:00")), None)
    assert decision.cover_first is not None
    assert not decision.cover_first.exclusive


def test_jitter_leaves_in_the_chain_what_may_not_be_due_yet() -> None:
    job = a_job(since=at("11:30"), uid="uid00003", misfire=SKIP, jitterSec=600)
    entry = entry_for(job, "12:00")

    decision = decide_due(entry, job, at("14:10:30"))

    assert isinstance(decision, Fire)
    assert rows(decision) == ["12:00-13:00 (2) misfire policy SKIP"]
    assert decision.run == run_key(at("14:00"), uid="uid00003")
    assert decision.due_at == job.due_at(at("14:00"))


def test_a_row_says_which_occurrence_is_its_first_where_runs_are_counted() -> None:
    job = a_job(since=at("10:30"), misfire=RUN_LATEST, maxRuns=4)

    decision = decide_due(job.fire_entry(at("12:00"), 2), job, at("16:30"))

    assert isinstance(decision, Fire)
    assert rows(decision) == ["12:00-13:00 (2) misfire policy RUN_LATEST"]
    assert decision.missed[0].ordinal == 2
    assert (decision.run, decision.successor) == (run_key(at("14:00")), None)
