"""Plans of pipelines: what is created, changed, adopted and removed, in which order."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nextfire import PipelineError
from nextfire.client.pipelines.document import OWNER, Pipeline
from nextfire.client.pipelines.plan import (
    Action,
    Existing,
    Plan,
    declare,
    new_schedules,
    plan,
    schedule_faults,
)
from tests.unit.pipeline_documents import job, pipeline

NOW = datetime(2026, 5, 24, 12, tzinfo=UTC)


def existing(owner: str | None = "etl", **jobs: dict[str, Any]) -> dict[str, Existing]:
    return {
        job_id: Existing('"e"', definition, owner)
        for job_id, definition in pipeline(None, **jobs).jobs.items()
    }


def planned(
    given: Pipeline, stored: dict[str, Existing] | None = None, *, adopt: bool = False
) -> Plan:
    declared, stored = declare([given]), stored or {}
    faults = schedule_faults(new_schedules(declared, stored), NOW)
    return plan(declared, stored, adopt=adopt, faults=faults)


def steps(found: Plan) -> list[str]:
    return [f"{each.action} {each.job_id}" for each in found.changes]


def refused(error: pytest.ExceptionInfo[PipelineError]) -> str:
    return str(error.value)


# Plans


def test_parents_are_created_before_their_children() -> None:
    found = planned(pipeline(a=job("b"), b=job("c"), c=job()))

    assert steps(found) == ["create c", "create b", "create a"]
    assert found.changes[0].request()["labels"] == {OWNER: "etl"}


def test_children_are_removed_before_their_parents_and_after_everything_else() -> None:
    stored = existing(a=job(), b=job("a"), c=job("b"), d=job("c"))

    found = planned(pipeline(d=job()), stored)

    assert steps(found) == ["update d", "remove c", "remove b", "remove a"]


def test_what_is_as_declared_is_unchanged() -> None:
    found = planned(pipeline(a=job()), existing(a=job(timeoutSec=300)))

    assert steps(found) == ["unchanged a"]
    assert not found


def test_an_update_names_its_fields() -> None:
    was = job(payload={"region": "eu", "n": 1}, labels={"a.b": "1"})
    found = planned(pipeline(a=job(payload={"region": "us", "n": True}, name="A")), existing(a=was))

    fields = found.changes[0].document()["fields"]
    assert {each.pop("field"): each for each in fields} == {
        "payload.region": {"old": "eu", "new": "us"},
        "payload.n": {"old": 1, "new": True},
        'labels["a.b"]': {"old": "1"},
        "name": {"new": "A"},
    }


def test_a_deleted_job_is_created_again_by_a_new_request() -> None:
    never = planned(pipeline(a=job()))
    deleted = planned(pipeline(a=job()), {"a": Existing('"e"', None)})
    changed = planned(pipeline(a=job(name="A")))

    assert steps(deleted) == ["create a"]
    keys = {each.changes[0].key() for each in (never, deleted, changed)}
    assert len(keys) == 3
    assert planned(pipeline(a=job())).changes[0].key() in keys


@pytest.mark.parametrize(
    ("name", "owner", "message"),
    [
        (
            "etl",
            "other",
            (
                "jobId: the job belongs to the pipeline other (got 'a'). To let the pipeline etl "
                "own it, add --adopt (in Python: adopt=True)."
            ),
        ),
        (
            "etl",
            None,
            (
                "jobId: the job has no pipeline (got 'a'). To let the pipeline etl own it, add "
                "--adopt (in Python: adopt=True)."
            ),
        ),
        (
            None,
            "etl",
            (
                "jobId: the job belongs to the pipeline etl (got 'a'). Declare it in a file with"
                " `pipeline: etl`, or use another id."
            ),
        ),
    ],
)
def test_a_job_of_another_owner_is_not_touched(
    name: str | None, owner: str | None, message: str
) -> None:
    with pytest.raises(PipelineError) as error:
        planned(pipeline(name, a=job()), existing(owner, a=job()))

    assert error.value.remedy == message
    assert error.value.problem == "The pipelines cannot be applied. Nothing was changed."


@pytest.mark.parametrize("owner", ["other", None])
def test_adopt_takes_a_job_over(owner: str | None) -> None:
    [change] = planned(pipeline(a=job()), existing(owner, a=job()), adopt=True).changes

    assert (change.action, change.adopted) == (Action.UPDATE, True)
    assert [each.path for each in change.fields] == ['labels["nextfire.pipeline"]']


def test_adopt_releases_no_job() -> None:
    with pytest.raises(PipelineError, match="Declare it in a file with `pipeline: etl`"):
        planned(pipeline(None, a=job()), existing("etl", a=job()), adopt=True)


def test_a_file_without_a_pipeline_removes_nothing() -> None:
    found = planned(pipeline(None, a=job()), existing(None, b=job()) | existing("etl", c=job()))

    assert steps(found) == ["create a"]
    assert "labels" in found.changes[0].request()
    assert OWNER not in found.changes[0].request()["labels"]


@pytest.mark.parametrize(
    ("jobs", "stored", "message"),
    [
        (
            {"a": job("x")},
            {},
            (
                "a.after: the parent 'x' does not exist (got 'x'). Declare the parent too, or "
                "remove the edge."
            ),
        ),
        (
            {"load": job("extarct"), "extract": job()},
            {},
            (
                "load.after: the parent 'extarct' does not exist (got 'extarct'). Did you mean "
                "`extract`? If not, declare the parent too, or remove the edge."
            ),
        ),
        (
            {"a": job("x")},
            existing(x=job()),
            (
                "a.after: the parent 'x' is removed: it left its pipeline's file (got 'x'). Declare"
                " the parent too, or remove the edge."
            ),
        ),
        (
            {"a": job()},
            existing(x=job()) | existing("other", y=job("x")),
            (
                "jobId: the job 'y' of another pipeline waits for it (got 'x'). Keep x, or change y"
                " first."
            ),
        ),
    ],
)
def test_an_edge_that_would_lead_nowhere_is_refused(
    jobs: dict[str, Any], stored: dict[str, Existing], message: str
) -> None:
    with pytest.raises(PipelineError) as error:
        planned(pipeline(**jobs), stored)

    assert error.value.remedy == message


def test_a_parent_of_another_pipeline_is_enough() -> None:
    found = planned(pipeline(a=job("x")), existing("other", x=job()))

    assert steps(found) == ["create a"]


def test_a_cycle_is_refused_with_its_path() -> None:
    with pytest.raises(PipelineError) as error:
        declare([pipeline(a=job("b"), b=job("c"), c=job("a"))])

    assert "after: the jobs wait for each other: " in refused(error)
    path = refused(error).partition("each other: ")[2].partition(".")[0].split(" -> ")
    assert path[0] == path[-1]
    assert {*path} == {"a", "b", "c"}


def test_a_job_of_two_files_is_refused() -> None:
    one, other = (
        Pipeline("etl", pipeline(a=job()).jobs, source) for source in ("1.yaml", "2.yaml")
    )
    with pytest.raises(PipelineError) as error:
        declare([one, other])

    assert error.value.remedy == (
        "jobId: declared in 1.yaml and in 2.yaml (got 'a'). Declare each job once."
    )


def test_a_schedule_that_never_fires_is_refused_before_anything_is_changed() -> None:
    past = job(type="ONCE", schedule="2020-01-01T00:00:00Z")
    with pytest.raises(PipelineError, match=r"a\.schedule: "):
        planned(pipeline(a=past))

    assert steps(planned(pipeline(a=past), existing(a=past))) == ["unchanged a"]
    renamed = planned(pipeline(a=past | {"name": "A"}), existing(a=past))
    assert steps(renamed) == ["update a"]


def test_all_that_is_wrong_is_reported_at_once() -> None:
    past = job(type="ONCE", schedule="2020-01-01T00:00:00Z")
    stored = existing("other", b=job())
    with pytest.raises(PipelineError) as error:
        planned(pipeline(a=past, b=job(), c=job("nowhere")), stored)

    assert [each.field for each in error.value.errors] == ["jobId", "c.after", "a.schedule"]
