"""Pipelines: documents, plans, the builder in Python."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

import nextfire
from nextfire import PipelineError
from nextfire.client.pipelines.document import OWNER, Pipeline, read
from nextfire.client.pipelines.plan import (
    Action,
    Existing,
    Plan,
    check_schedules,
    declare,
    plan,
)
from nextfire.domain.definition import JobDefinition
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.target import Target

NOW = datetime(2026, 5, 24, 12, tzinfo=UTC)
MANUAL: dict[str, Any] = {"type": "MANUAL", "target": {"handler": "hello"}}


def job(*parents: str, **fields: Any) -> dict[str, Any]:
    if parents:
        fields = {"type": "AFTER", "after": [{"job": each} for each in parents]} | fields
    return MANUAL | fields


def pipeline(name: str | None = "etl", **jobs: dict[str, Any]) -> Pipeline:
    [found] = read({"pipeline": name, "jobs": [{"jobId": each, **jobs[each]} for each in jobs]})
    return found


def existing(owner: str | None = "etl", **jobs: dict[str, Any]) -> dict[str, Existing]:
    return {
        job_id: Existing('"e"', definition, owner)
        for job_id, definition in pipeline(None, **jobs).jobs.items()
    }


def planned(
    declared: Pipeline, there: dict[str, Existing] | None = None, *, adopt: bool = False
) -> Plan:
    return plan(declare([declared]), there or {}, adopt=adopt)


def steps(found: Plan) -> list[str]:
    return [f"{each.action} {each.job_id}" for each in found.changes]


def refused(error: pytest.ExceptionInfo[PipelineError]) -> str:
    return str(error.value)


# Documents


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (
            [],
            None,
        ),
        (
            "x",
            (
                "jobs: a pipeline has a list of jobs. Write `pipeline: NAME` and "
                "`jobs:` with a list of job documents."
            ),
        ),
        (
            {"jobs": [], "owner": 1},
            (
                "owner: unknown field (got 1). A pipeline has the fields `pipeline`, "
                "`deadlineSec` and `jobs`."
            ),
        ),
        (
            {"pipeline": "a b", "jobs": []},
            (
                "pipeline: not the name of a pipeline (got 'a b'). Use 1 to 64 letters, digits, "
                "hyphens and underscores. For example `etl`."
            ),
        ),
        (
            {"jobs": [MANUAL]},
            (
                "jobs[0].jobId: not the id of a job. Each job needs an id of 1 to 64 "
                "letters, digits, hyphens and underscores."
            ),
        ),
        (
            {"jobs": [{"jobId": "a", **MANUAL}, {"jobId": "a", **MANUAL}]},
            "jobs[1].jobId: listed twice (got 'a'). Give each job of a pipeline its own id.",
        ),
        (
            {"jobs": [{"jobId": "a", **MANUAL, "timeuotSec": 5}]},
            "a.timeuotSec: unknown field (got 5). Did you mean `timeoutSec`?",
        ),
        (
            {"jobs": [{"jobId": "a", **MANUAL, "retryPolicy": {"maxAttempts": 101}}]},
            (
                "a.retryPolicy.maxAttempts: Input should be less than or equal to 100 (got 101). A "
                "run has 1 to 100 attempts; unlimited retries are not supported. For example `5`."
            ),
        ),
        (
            {"pipeline": "etl", "jobs": [{"jobId": "a", **MANUAL, "labels": {OWNER: "b"}}]},
            (
                "a.labels.nextfire.pipeline: reserved (got 'b'). Omit it: `pipeline: NAME` at the "
                "top of the file sets it."
            ),
        ),
        (
            {
                "pipeline": "etl",
                "jobs": [{"jobId": "a", **MANUAL, "labels": {str(n): "" for n in range(32)}}],
            },
            (
                "a.labels: too many (got 32 labels). A job of a pipeline has at most 31: its owner "
                "is one more."
            ),
        ),
    ],
)
def test_an_invalid_document_names_the_field_and_the_remedy(
    document: object, message: str | None
) -> None:
    if message is None:
        assert read(document) == []
        return
    with pytest.raises(PipelineError) as error:
        read(document, "pipeline.yaml")

    assert error.value.problem == "pipeline.yaml is invalid."
    assert error.value.remedy == message


def test_all_invalid_fields_are_named_at_once() -> None:
    jobs = [{"jobId": "a", **MANUAL, "x": 1}, {"jobId": "b", "target": {}}]
    with pytest.raises(PipelineError) as error:
        read({"jobs": jobs})

    assert {each.field for each in error.value.errors} >= {"a.x", "b.type", "b.target"}


# Plans


def test_parents_are_created_before_their_children() -> None:
    found = planned(pipeline(a=job("b"), b=job("c"), c=job()))

    assert steps(found) == ["create c", "create b", "create a"]
    assert found.changes[0].request()["labels"] == {OWNER: "etl"}


def test_children_are_removed_before_their_parents_and_after_everything_else() -> None:
    there = existing(a=job(), b=job("a"), c=job("b"), d=job("c"))

    found = planned(pipeline(d=job()), there)

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
    ("jobs", "there", "message"),
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
    jobs: dict[str, Any], there: dict[str, Existing], message: str
) -> None:
    with pytest.raises(PipelineError) as error:
        planned(pipeline(**jobs), there)

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
        check_schedules(planned(pipeline(a=past)), NOW)

    check_schedules(planned(pipeline(a=past), existing(a=past)), NOW)
    renamed = planned(pipeline(a=past | {"name": "A"}), existing(a=past))
    check_schedules(renamed, NOW)
    assert steps(renamed) == ["update a"]


# Python


def test_a_pipeline_in_python() -> None:
    with nextfire.pipeline("etl") as p:
        a = p.job("a", type="CRON", schedule="0 3 * * *", target=Target(handler="a"))
        b, c = (p.job(each, target={"handler": each}, timeout_sec=60) for each in "bc")
        d = p.job("d", {"target": {"handler": "d"}, "payload": {"some_key": None}})
        a >> [b, c] >> d

    edges = {each["jobId"]: each.get("after") for each in p.document()["jobs"]}
    assert edges == {
        "a": None,
        "b": [{"job": "a"}],
        "c": [{"job": "a"}],
        "d": [{"job": "b"}, {"job": "c"}],
    }
    assert p.document()["pipeline"] == "etl"
    jobs = p.pipeline().jobs
    assert jobs["d"].payload == {"some_key": None}
    assert [jobs[each].type for each in "abcd"] == [ScheduleType.CRON, *[ScheduleType.AFTER] * 3]
    assert jobs["b"].timeout_sec == 60


def test_groups_of_jobs_in_python() -> None:
    with nextfire.pipeline("etl") as p:
        a = p.job("a", MANUAL)
        b, c, d, e = (p.job(each, target={"handler": each}) for each in "bcde")
        a >> [b, c] >> [d, e]
        e.after("outside", delay_sec=60)

    edges = {
        job_id: [each.job for each in definition.after]
        for job_id, definition in p.pipeline().jobs.items()
    }
    assert edges == {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["b", "c", "outside"]}
    assert p.pipeline().jobs["e"].after[-1].delay_sec == 60


def test_a_pipeline_is_checked_at_the_end_of_its_block() -> None:
    def circle() -> None:
        with nextfire.pipeline("etl") as p:
            a, b = (p.job(each, target={"handler": each}) for each in "ab")
            a >> b >> a

    def misspelt() -> None:
        with nextfire.pipeline("etl") as p:
            p.job("a", MANUAL, timeout_secs=1)

    with pytest.raises(PipelineError, match="wait for each other"):
        circle()
    with pytest.raises(PipelineError, match="Did you mean `timeoutSec`"):
        misspelt()


def test_an_error_in_the_block_is_not_hidden() -> None:
    def block() -> None:
        with nextfire.pipeline("etl") as p:
            p.job("a", {})
            raise KeyError

    with pytest.raises(KeyError):
        block()


def test_definitions_keep_their_type() -> None:
    assert all(isinstance(each, JobDefinition) for each in pipeline(a=job()).jobs.values())
