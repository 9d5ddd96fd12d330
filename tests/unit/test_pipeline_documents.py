"""Pipelines as documents: what is rejected, with the field and the remedy."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from nextfire import PipelineError
from nextfire.client.pipelines.document import OWNER, read
from tests.unit.pipeline_documents import MANUAL

NOW = datetime(2026, 5, 24, 12, tzinfo=UTC)

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
            {"jobId": "a", **MANUAL},
            (
                "jobs: a pipeline has a list of jobs. Write `pipeline: NAME` and "
                "`jobs:` with a list of job documents. For one job without a pipeline: "
                "nextfire jobs create -f FILE"
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
            {"jobs": [], 1: 2},
            (
                "1: unknown field (got 2). A pipeline has the fields `pipeline`, "
                "`deadlineSec` and `jobs`."
            ),
        ),
        (
            {"jobs": [{"jobId": "a", **MANUAL, "payload": NOW}]},
            (
                "a: not JSON: Object of type datetime is not JSON serializable. Use texts, "
                "numbers, true, false, null, lists and objects."
            ),
        ),
        (
            {"jobs": [], "deadlineSec": {1, 2}},
            (
                "deadlineSec: not JSON: Object of type set is not JSON serializable. Use texts, "
                "numbers, true, false, null, lists and objects."
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


def test_a_number_that_json_does_not_have_is_named_with_its_job() -> None:
    with pytest.raises(PipelineError, match=r"a: not JSON: .* Use texts, numbers"):
        read({"jobs": [{"jobId": "a", **MANUAL, "payload": float("nan")}]})


def test_all_invalid_fields_are_named_at_once() -> None:
    jobs = [{"jobId": "a", **MANUAL, "x": 1}, {"jobId": "b", "target": {}}]
    with pytest.raises(PipelineError) as error:
        read({"jobs": jobs})

    assert {each.field for each in error.value.errors} >= {"a.x", "b.type", "b.target"}


def test_a_cycle_is_reported_with_the_invalid_fields() -> None:
    jobs = [
        {"jobId": "a", **MANUAL, "x": 1},
        {"jobId": "b", "type": "AFTER", "after": [{"job": "c"}], "target": {"handler": "b"}},
        {"jobId": "c", "type": "AFTER", "after": [{"job": "b"}], "target": {"handler": "c"}},
    ]
    with pytest.raises(PipelineError) as error:
        read({"jobs": jobs})

    assert [each.field for each in error.value.errors] == ["a.x", "b.after"]
    assert "the jobs wait for each other: b -> c -> b" in str(error.value)


def test_members_that_begin_with_x_are_for_anchors() -> None:
    [found] = read({"x-common": {"timeoutSec": 60}, "jobs": [{"jobId": "a", **MANUAL}]})

    assert {*found.jobs} == {"a"}


@pytest.mark.parametrize("deadline", ["x", 0, True, [60]])
def test_an_invalid_deadline_is_named_once_also_without_jobs_that_have_it(deadline: object) -> None:
    after = {"type": "AFTER", "after": [{"job": "a"}], "target": {"handler": "b"}}
    for jobs in ([], [{"jobId": "a", **MANUAL}, {"jobId": "b", **after}]):
        with pytest.raises(PipelineError) as error:
            read({"pipeline": "etl", "deadlineSec": deadline, "jobs": jobs})

        assert [each.field for each in error.value.errors] == ["deadlineSec"]
