"""The builder of pipelines in Python."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import nextfire
from nextfire import PipelineError
from nextfire.domain.definition import JobDefinition
from nextfire.domain.schedule import ScheduleType
from nextfire.domain.target import Target
from tests.unit.pipeline_documents import MANUAL, job, pipeline

NOW = datetime(2026, 5, 24, 12, tzinfo=UTC)

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
