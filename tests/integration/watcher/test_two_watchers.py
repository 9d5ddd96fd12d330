"""Two watchers on one lease: takeover, and nothing is sent twice."""

from __future__ import annotations

from datetime import timedelta

from tests.builders import a_fire, at
from tests.integration.watcher.conftest import Stand, minutely, run_ids


def test_two_on_one_lease_send_each_run_once(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    second = stand.new_watch("second")

    stand.go_to(at("12:01:01"), second)

    sent = [name for name, _ in stand.queues.calls if name.startswith("send_message")]
    assert len(sent) == 2, "FIFO deduplication would hide double sends"
    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00", "12:01")
    assert stand.watch.holds != second.holds


def test_standby_takes_over_from_a_killed_holder_within_four_seconds(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    second = stand.new_watch("second")
    stand.go_to(at("11:59:59.9"), second)
    dead, stand.watch = stand.watch, second
    assert dead.holds

    stand.go_to(at("12:00:05"))

    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
    [lateness] = stand.lateness
    assert lateness <= timedelta(seconds=4)


def test_holder_that_slept_sends_nothing_twice_in_effect(stand: Stand) -> None:
    job = minutely()
    stand.store(job)
    second = stand.new_watch("second")
    stand.go_to(at("11:59:59.9"), second)
    sleeper, stand.watch = stand.watch, second
    stand.go_to(at("12:00:10"))

    stand.go_to(at("12:00:20"), sleeper)

    assert not sleeper.holds
    assert [m.run_id for m in stand.received()] == run_ids(job, "12:00")
    assert stand.fires(job) == [a_fire(job, at("12:01")).sort_key]


def test_lease_that_is_let_go_passes_on_at_once(stand: Stand) -> None:
    second = stand.new_watch("second")
    stand.go_to(at("11:59:58"), second)
    stand.watch.end()
    stand.watch = second

    stand.go_to(at("11:59:58.5"))

    assert second.holds
