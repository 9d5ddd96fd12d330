"""The end of a history: everything is repaired, comes to rest, and its records are checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from nextfire.domain.due import DueEntry
from nextfire.domain.instants import floor_minute
from nextfire.domain.occurrences import JobState
from nextfire.domain.quotas import TenantQuotas
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from tests.accounting import assert_all_accounted_for, assert_chained, settle
from tests.evidence import Evidence, first_sent, reported_missed
from tests.simulation.answer_checks import (
    check_asked,
    check_backfilled,
    check_cancelled,
    check_drained,
    check_hastened,
    check_keyed,
    check_redriven,
    check_skipped,
    is_of,
)
from tests.simulation.callbacks import received_at_rest
from tests.simulation.flow import TENANTS
from tests.simulation.sequence_judge import SequenceJudge
from tests.simulation.upstream_judge import UpstreamJudge
from tests.unit.auditing import auditor
from tests.world import World

if TYPE_CHECKING:
    from tests.simulation.history import History

_STEP = timedelta(seconds=2)


def _without_rates(quotas: TenantQuotas) -> TenantQuotas:
    """*quotas* without rate limits: otherwise jobs due every ten seconds would never be sent in
    full.
    """
    none = {"runs_per_minute": None}
    own = {tenant: each.model_copy(update=none) for tenant, each in quotas.tenants.items()}
    return quotas.model_copy(update={"tenants": own})


def come_to_rest(history: History) -> int:
    """Repair everything, let all that can end do so, then check the records.

    Returns:
        Number of occurrences accounted for.
    """
    check_rates(history)
    world = World(
        stores=history.stores,
        clock=history.kernel.clock,
        shards=history.setting.shards,
        first_epoch=10**15,
        quotas=_without_rates(history.setting.shares.quotas),
    )
    world.call_targets[TargetKind.HTTP] = received_at_rest(history.system.receiver, world.clock)
    history.kernel.log("rest", "all processes are new, no faults")
    _repair(history, world)
    _check_jobs(history, world)
    history.system.receiver.check(history.stores.runs.items)
    _check_sequences(history)
    for wrong in history.projection.wrong(history.stores.runs):
        raise AssertionError(wrong)
    check_cancelled(history)
    check_redriven(history)
    check_hastened(history)
    check_asked(history)
    check_keyed(history)
    check_skipped(history)
    check_drained(history)
    check_backfilled(history)
    check_undecodable(history)
    check_counts(history)
    _check_audits(history, world)
    history.monitor.check_queue_ids()
    assert not history.monitor.violations, history.monitor.violations[0]
    return sum(run.covered for run in history.stores.runs.items.values())


def _repair(history: History, world: World) -> None:
    """Repair everything, and let all that can end do so."""
    for key in [*history.stores.jobs.items]:
        history.stores.jobs.repair(key)
        job = world.job(key)
        if job.state is JobState.PAUSED and job.resumes_at is None:
            world.manage.resume(key, now=world.now)
    if history.monitor.tampered and not history.vandalised:
        _check_chains_repaired(history, world)
    if history.vandalised:
        # Runs whose messages were purged stay unfinished without an audit.
        with suppress(AssertionError):
            settle(world, step=_STEP, at_most=500)
    if history.monitor.tampered or history.vandalised:
        # Beyond the auditor's grace period, and again for what it passed over then.
        for later in (31, 0, 31, 0):  # the watchers are behind at first
            world.advance(minutes=later)
            _audit(history, world)
            with suppress(AssertionError):
                settle(world, step=_STEP, at_most=500)
    settle(world, step=_STEP, at_most=6_000)  # joins that end one after the other
    if history.junk_entries:  # a malformed key is found when its bucket is closed
        world.advance(minutes=3)
        settle(world, step=_STEP, at_most=3_000)


def _check_jobs(history: History, world: World) -> None:
    """Check the records of each job without parents."""
    sent = first_sent(history.stores.queue.log)
    decided = {
        key: history.decided[key, at] for key, at in sent.items() if (key, at) in history.decided
    }
    # for each id, every job that had it
    for job in [stored[-1].job for stored in history.ever.values()]:
        resumes_at = job.resumes_at if job.state is JobState.PAUSED else None
        assert resumes_at is None or resumes_at > world.now, f"{job.key.job_id} was not resumed"
        tampered = history.vandalised or job.key in history.monitor.tampered
        current = history.stores.jobs.items.get(job.key)
        removed = current is None or current.uid != job.uid
        if job.definition.after or (tampered and (removed or job.state is JobState.CANCELLED)):
            continue  # the judge of sequences handles those with parents;
            # the auditor handles only jobs that are stored and were not deleted
        assert_all_accounted_for(
            world,
            job,
            allow_late_starts=True,
            stray=history.monitor.is_stray,
            evidence=Evidence(
                history.ever[job.key, job.uid],
                sent,
                history.asked_to_cancel.__contains__,
                decided,
                vanished=[run for key, run in history.vanished.items() if is_of(key, job)],
                missed=reported_missed(history.stores.queue.log, job),
                removed_at=history.removed.get((job.key, job.uid)),
            ),
            purged=history.vandalised,
        )


def _check_chains_repaired(history: History, world: World) -> None:
    """The watcher that quarantines a broken FIRE entry repairs the chain, without an auditor. A
    parked entry is found in its minute.
    """
    with suppress(AssertionError):
        settle(world, step=_STEP, at_most=500)
    met = max(_unread_minutes(history), default=world.now)
    world.advance(seconds=max((met - world.now).total_seconds(), 0) + 180)
    with suppress(AssertionError):
        settle(world, step=_STEP, at_most=3_000)
    stored = history.stores.jobs.items.keys()  # others were removed after their retention
    for key in (history.monitor.tampered - history.unreadable) & stored:
        assert_chained(world, world.job(key))


def _unread_minutes(history: History) -> Iterator[datetime]:
    """The minutes of undecodable entries that no watcher has read yet."""
    for slot, item in history.stores.due.items.items():
        if not isinstance(item, DueEntry):
            minute = slot.bucket.partition("#")[0]
            yield datetime.strptime(minute, "%Y-%m-%dT%H:%MZ").replace(tzinfo=UTC)


def _audit(history: History, world: World) -> None:
    for report in auditor(world).continue_audit(world.now + timedelta(minutes=14), restart=True):
        history.system.audits.append(report)
        history.kernel.log("auditor", str(report))


def _check_sequences(history: History) -> None:
    if history.sequences is None:
        return
    joins = history.stores.joins
    judge = SequenceJudge(
        history.sequences,
        history.ever,
        history.stores.runs.items,
        lambda run: joins.read(run, range(20)),
    )
    upstream = UpstreamJudge(history.sequences, history.ever)
    for wrong in (*judge.wrong(), *upstream.wrong(history.system.started)):
        raise AssertionError(wrong)


def _check_audits(history: History, world: World) -> None:
    """Check that no audit repaired anything in a history without damage."""
    if history.vandalised or history.monitor.tampered or history.unreadable:
        return
    _audit(history, world)
    for report in history.system.audits:
        assert not report.repaired, f"an audit repaired undamaged data: {report}"


def check_rates(history: History) -> None:
    """The runs sent of a tenant stay within its quota of runs per minute. A watcher may take a
    run at the end of a minute and send it in the next. Runs that have waited for their endpoint
    were taken before.
    """
    sent = {(m.key, m.dispatch): m for m in reversed(history.stores.queue.log)}.values()
    minutes = Counter(
        (m.tenant, floor_minute(m.dispatched_at)) for m in sent if history.rates.takes(m)
    )
    for (tenant, minute), count in minutes.items():
        most = history.setting.shares.quotas.of(tenant).runs_per_minute
        assert most is None or count <= 2 * most, f"{count} runs of {tenant} in {minute}"


def check_counts(history: History) -> None:
    """The counter of a tenant's jobs equals its number of counted jobs."""
    jobs = history.stores.jobs.items.values()
    for tenant in TENANTS:
        counted = [job for job in jobs if job.key.tenant == tenant and job.counted]
        count = history.stores.jobs.counts[tenant]
        assert count == len(counted), f"{len(counted)} jobs of {tenant} count as {count}"
        assert not any(job.state.ended for job in counted), f"{tenant}: an ended job is counted"
        most = history.setting.shares.quotas.of(tenant).jobs
        uncounted = [j for j in jobs if j.key.tenant == tenant and not j.counted]
        forgotten = [job.key.job_id for job in uncounted if not job.state.ended]
        assert most is None or not forgotten, f"{tenant}: {forgotten} are not counted"
        assert most is None or count <= most, f"{tenant} has {count} jobs, more than {most}"


def check_undecodable(history: History) -> None:
    """Undecodable items are kept (invariant 10)."""
    kept = len(history.stores.due.quarantined)
    assert kept >= history.junk_entries, (
        f"{history.junk_entries} entries did not decode, {kept} are kept (invariant 10)"
    )
    letters = {body for body, _ in history.stores.dead_letters.letters}
    for number in range(1, history.junk_messages + 1):
        assert f"junk {number}" in letters or history.vandalised, (
            f"junk {number} is not in the dead-letter queue (invariant 10)"
        )
    for run in history.stores.runs.items.values():
        if run.state is RunState.DEAD:
            published = any(run.key.run_id in body for body in letters)
            # If its message was purged before the death was published, no other part publishes
            # it.
            published = published or (history.vandalised and run.buried != run.dispatch)
            assert published, f"{run.key.execution_id} is DEAD, but not in the dead-letter queue"
