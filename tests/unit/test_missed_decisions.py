"""Decisions about late entries: the policy, the relevancy window, and ranges of what was missed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from nextfire.domain import due_decisions
from nextfire.domain.due import FireEntry
from nextfire.domain.due_decisions import Cover, Fire, decide_due
from nextfire.domain.job import Job
from nextfire.domain.message import MAX_RANGES
from nextfire.domain.misfire import MISFIRE_AFTER, decide_misfire
from nextfire.domain.missed import Missed
from nextfire.domain.occurrences import JobState
from nextfire.domain.policies import MisfirePolicy
from tests.builders import NOON, RUN_ALL, RUN_LATEST, SKIP, a_definition, a_fire, a_job, at, run_key

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
