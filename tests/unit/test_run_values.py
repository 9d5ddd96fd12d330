"""What a script leaves: checkpoints, results and logs; and its environment."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nextfire.domain.attempt import MAX_VALUE_BYTES, AttemptOutcome, Result, Value
from nextfire.domain.errors import UnavailableError
from nextfire.domain.log import PART_BYTES, decode_part, part_name
from nextfire.domain.message import MAX_RECORDED_REASON
from nextfire.domain.ports.targets import AttemptResult
from nextfire.domain.run import RunState
from nextfire.domain.target import TargetKind
from nextfire.usecases.handled import Disposition
from tests.builders import LEASE, a_retry, at
from tests.dispatched import FAILS, dispatched, log
from tests.world import World

# Checkpoints, results and environment


def test_a_checkpoint_is_given_to_the_next_attempt(world: World) -> None:
    dispatched(world, retryPolicy={"initialDelayMs": 1000})
    world.script(saves=b'{"page": 7}', **FAILS)
    world.worker("a").work_one()
    world.tick_at("12:00:01")
    world.worker("b").work_one()

    assert world.runner.found == [None, b'{"page": 7}']
    assert world.runner.refused == [None]


def test_a_large_checkpoint_outlives_its_worker(world: World) -> None:
    large = b'"' + b"x" * 20_000 + b'"'
    job = dispatched(world)
    world.script(saves=large, lasts=LEASE * 2, frozen=True)
    world.worker("a").work_one()
    world.worker("b").work_one()

    assert world.runner.found == [None, large]
    kept = world.run(job, "12:00").checkpoint
    assert kept is not None
    assert (kept.text, kept.size) == (None, len(large))


def test_a_worker_that_lost_its_run_keeps_no_checkpoint(world: World) -> None:
    job = dispatched(world)

    def take_over() -> None:
        run = world.run(job, "12:00")
        to = run.taken_over(
            dispatch=1, token="x", worker="b", now=world.now, lease_until=world.now + LEASE
        )
        world.runs.advance(run, to)

    world.faults.call_before_next("runs.save", take_over)
    world.script(saves=b"1", lasts=timedelta(seconds=30))
    handled = world.worker("a").work_one()

    assert world.now == at("12:00"), "the script is stopped at once"

    assert world.runner.refused == ["the checkpoint was not stored: this worker has lost the run"]
    assert handled.disposition is Disposition.LEAVE
    run = world.run(job, "12:00")
    assert (run.checkpoint, run.worker, run.state) == (None, "b", RunState.RUNNING)


def test_a_throttled_checkpoint_does_not_fail_the_attempt(world: World) -> None:
    job = dispatched(world)
    world.faults.refuse("runs.save", times=20)
    world.script(saves=b"1")
    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert world.runner.refused == [None]
    assert (run.state, run.attempt) == (RunState.SUCCEEDED, 1)
    assert run.checkpoint is not None


def test_a_checkpoint_that_is_too_large_is_refused(world: World) -> None:
    dispatched(world)
    world.script(saves=b"1" * (MAX_VALUE_BYTES + 1))
    world.worker().work_one()

    (refused,) = world.runner.refused
    assert refused == (
        "the checkpoint has 1048577 bytes, more than 1048576. "
        "Store the data in S3 and put its address here."
    )


def test_values_that_others_could_not_decode_are_rejected(world: World) -> None:
    job, deep = dispatched(world), b"[" * 201 + b"]" * 201
    world.script(saves=deep, result=deep)
    world.worker().work_one()

    text = (
        "nested more than 200 levels deep. "
        "Flatten it, for example into a list of objects that name their parents."
    )
    assert world.runner.refused == [f"the checkpoint is {text}"]
    run = world.run(job, "12:00")
    assert (run.state, run.reason, run.result) == (RunState.DEAD, f"the result is {text}", None)


class DeepResponse:
    """A `TargetRunner` whose call returns a value that others could not decode."""

    def admit(self, *_: object, **__: object) -> None:
        """Nothing holds the call."""

    def release(self, *_: object) -> None:
        """Nothing was held."""

    def attempt(self, *_: object) -> AttemptResult:
        given = b"[" * 201 + b"]" * 201
        return AttemptResult(Result(AttemptOutcome.SUCCEEDED, "200 OK"), given=given)


def test_a_call_succeeds_without_a_result_that_others_could_not_decode(world: World) -> None:
    world.call_targets[TargetKind.HTTP] = DeepResponse()
    job = world.register(target={"pool": "default", "http": {"url": "https://api.example.com"}})
    world.tick_at("12:00")
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.result) == (RunState.SUCCEEDED, None)
    assert run.reason is not None
    assert run.reason.startswith("200 OK; the result is nested more than 200 levels deep. ")


def test_a_result_is_on_the_record_a_large_one_in_a_file(world: World) -> None:
    small, large = dispatched(world), b'"' + b"y" * 9000 + b'"'
    world.script(result=b"[1, 2]")
    world.worker().work_one()
    world.tick_at("13:00")
    world.script(result=large)
    world.worker().work_one()

    assert world.run(small, "12:00").result == Value(6, text="[1, 2]")
    run = world.run(small, "13:00")
    assert run.result == Value(len(large), file="result/000001.json")
    assert world.files.get(run.result_folder, "result/000001.json") == large


def test_a_result_is_stored_again_until_the_store_answers(world: World) -> None:
    job = dispatched(world)
    world.script(result=b'"' + b"y" * 9000 + b'"')
    world.faults.refuse("files.put", times=3)
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, world.now) == (RunState.SUCCEEDED, at("12:00:03"))
    assert run.result == Value(9002, file="result/000001.json")


def test_an_outage_of_the_files_that_outlasts_the_lease_costs_no_attempt(world: World) -> None:
    job = dispatched(world)
    world.script(result=b'"' + b"y" * 9000 + b'"')
    world.faults.refuse("files.put", times=600)
    world.faults.call_before_each("files.put", world.worker("b").work)
    world.worker("a").work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.worker) == (RunState.SUCCEEDED, 1, "a")
    assert world.now == at("12:10")
    assert world.queued == [], "its message stayed hidden"


def test_a_lease_is_not_extended_without_end_for_a_result(world: World) -> None:
    job = dispatched(world)
    world.script(result=b'"' + b"y" * 9000 + b'"')
    world.faults.refuse("files.put", times=10_000)
    with pytest.raises(UnavailableError):
        world.worker("a").work_one()

    assert at("12:15") < world.now < at("12:17")
    world.advance(minutes=1)
    world.faults.clear()
    world.worker("b").work_one()
    run = world.run(job, "12:00")
    assert (run.state, run.attempt, run.worker) == (RunState.SUCCEEDED, 2, "b")


def test_a_lease_is_not_extended_by_an_executor_that_is_about_to_end(world: World) -> None:
    dispatched(world)
    world.script(result=b'"' + b"y" * 9000 + b'"')
    world.faults.refuse("files.put", times=10_000)
    ends_at = world.now + timedelta(seconds=10)
    with pytest.raises(UnavailableError):
        world.worker("a").work_one(stopping=lambda: world.now >= ends_at)

    assert world.now < at("12:00:20"), "there is time left to hand back messages"


def test_the_environment_is_resolved_at_the_start_and_is_on_no_record(world: World) -> None:
    world.secrets.values |= {"acme/db#password": "hunter2", "acme/region": "north"}
    env = {
        "MODE": "fast",
        "PASSWORD": {"secret": "db", "key": "password"},
        "REGION": {"parameter": "region"},
    }
    job = dispatched(world, target={"handler": "report", "env": env})
    world.worker().work_one()

    (call,) = world.runner.calls
    given = {name: call.environment[name] for name in env}
    assert given == {"MODE": "fast", "PASSWORD": "hunter2", "REGION": "north"}
    assert "hunter2" not in repr(world.run(job, "12:00"))


def test_a_secret_that_is_not_there_ends_the_run_and_is_named(world: World) -> None:
    env = {"PASSWORD": {"secret": "db"}}
    job = dispatched(world, target={"handler": "report", "env": env})
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, world.runner.calls) == (RunState.DEAD, [])
    assert run.reason == "Secret 'acme/db' was not found. Create it."


def test_what_keeps_a_script_from_running_is_on_record_and_bounded(world: World) -> None:
    job = dispatched(world)

    def defect() -> None:
        raise KeyError("x" * 2000)

    world.faults.call_before_next("scripts.fetch", defect)
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert run.state is RunState.PENDING, "it will be retried"
    assert run.reason is not None
    assert run.reason.startswith("could not be run: KeyError: 'xxx")
    assert len(run.reason) == MAX_RECORDED_REASON


# Logs


def test_a_short_run_s_output_costs_no_request(world: World) -> None:
    job = dispatched(world)
    world.script(stdout="hello\n", lasts=timedelta(seconds=2))
    world.worker().work_one()

    assert (world.run(job, "12:00").stdout, world.files.puts) == ("hello\n", 0)


def test_a_long_run_s_output_is_there_while_it_runs(world: World) -> None:
    job = dispatched(world)
    seen: list[str] = []

    def look() -> None:
        data = world.files.get(world.run(job, "12:00").result_folder, part_name(1, 0))
        seen.extend(line.text for line in decode_part(data or b""))

    world.faults.call_before_next("runs.extend", look)
    world.script(stdout="one\ntwo\nthr", lasts=timedelta(seconds=30))
    world.worker().work_one()

    assert seen == ["one", "two"]
    assert log(world, world.run(job, "12:00")) == ["1 one", "1 two", "1 thr"]


def test_much_output_goes_to_files_part_by_part(world: World) -> None:
    job = dispatched(world)
    lines = [f"{n:06d} " + "x" * 90 for n in range(6000)]
    world.script(stdout="\n".join(lines))
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert run.attempts[0].log_parts == 3
    assert log(world, run) == [f"1 {line}" for line in lines]
    sizes = [len(data) for (folder, _), data in world.files.stored.items() if folder.key == run.key]
    assert max(sizes) < PART_BYTES + 200


def test_the_output_of_an_attempt_that_another_follows_is_kept(world: World) -> None:
    job = dispatched(world, retryPolicy={"initialDelayMs": 1000})
    world.script(stdout="first\n", **FAILS)
    world.worker().work_one()
    world.tick_at("12:00:01")
    world.script(stdout="second\n")
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert log(world, run) == ["1 first"]
    assert run.stdout == "second\n"


def test_the_output_of_a_run_that_died_is_kept_if_it_is_redriven(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    lines = "first\n" * 100  # more than the ends that a record has of a longer output
    world.script(stdout=lines, **FAILS)
    world.worker().work_one()
    dead = world.run(job, "12:00")
    assert (dead.state, dead.stdout) == (RunState.DEAD, lines)

    redriven = dead.redriven("fixed", world.now)
    entry = a_retry(dead.key, world.now, dispatch=redriven.dispatch)
    world.runs.redrive(redriven, entry, world.now)
    world.tick_at("12:00:01")
    world.script(stdout="second\n")
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.stdout) == (RunState.SUCCEEDED, "second\n")
    assert log(world, run) == ["1 first"] * 100


def test_the_output_of_a_run_that_cannot_be_stored_is_on_its_record(world: World) -> None:
    job = dispatched(world, retryPolicy={"maxAttempts": 1})
    world.files.broken = True
    world.script(stdout="first\n", **FAILS)
    world.worker().work_one()

    dead = world.run(job, "12:00")
    assert (dead.stdout, dead.attempts[0].log_parts) == ("first\n", 0)


def test_a_log_that_cannot_be_stored_holds_up_no_outcome(world: World) -> None:
    job = dispatched(world)
    world.files.broken = True
    world.script(stdout="x" * 5000 + "\n", lasts=timedelta(seconds=30))
    world.worker().work_one()

    run = world.run(job, "12:00")
    assert (run.state, run.attempts[0].log_parts) == (RunState.SUCCEEDED, 0)
