"""The API's lists of runs across jobs, filtered by the labels of the jobs."""

from __future__ import annotations

from typing import Any

import pytest

from functions.projector import handler as projector
from tests.fakes import Clock
from tests.integration.api_answers import assert_problem
from tests.integration.api_runs import dead, stopped_clock
from tests.integration.deployment import Deployment, labelled_key
from tests.integration.test_projector import MANUAL, Feed, ids

LABELS = {"a": {"team": "etl", "env": "prod"}, "b": {"team": "ops"}, "c": {"team": "etl"}}
PAGES_AT_MOST = 5
"""Of the list, that one call reads."""


@pytest.fixture
def feed(system: Deployment) -> Feed:
    projector._project_runs.cache_clear()  # noqa: SLF001 — like a new process
    for job_id, labels in LABELS.items():
        system.call("POST", "/v1/jobs", MANUAL | {"jobId": job_id, "labels": labels})
    return Feed(system)


def of_all_pages(feed: Feed, **query: str) -> list[str]:
    found: list[str] = []
    while True:
        page = feed.runs(**query)
        found += ids(page)
        if "cursor" not in page:
            return found
        query["cursor"] = page["cursor"]


@pytest.mark.parametrize("limit", ["1", "2", "100"])
@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("team:etl", "aacc"),
        ("team:etl,env:prod", "aa"),
        ("env:prod", "aa"),
        ("team:ops,env:prod", ""),
        ("team:none", ""),
    ],
)
def test_only_runs_of_jobs_with_all_labels(feed: Feed, label: str, found: str, limit: str) -> None:
    for job_id in "cabcab":
        feed.start(job_id)

    assert of_all_pages(feed, label=label, limit=limit) == [*found], "by job"
    assert of_all_pages(feed, label=label, limit=limit, jobId="a") == ["a"] * found.count("a")
    assert feed.deliver() == []
    latest_first = [job_id for job_id in "bacbac" if job_id in found]
    assert of_all_pages(feed, label=label, limit=limit, state="PENDING") == latest_first


def test_a_call_reads_few_pages(feed: Feed) -> None:
    feed.start("a")
    for _ in range(PAGES_AT_MOST):
        feed.start("b")
    feed.deliver()

    empty = feed.runs(label="team:etl", limit="1")
    assert ids(empty) == []
    assert ids(feed.runs(label="team:etl", limit="1", cursor=empty["cursor"])) == ["a"]
    assert ids(feed.runs(label="team:etl", limit="2")) == ["a"]


def test_the_labels_are_those_of_the_job_now(feed: Feed) -> None:
    for job_id in "ab":
        feed.start(job_id)
    feed.deliver()
    call = feed.system.call
    assert call("PATCH", "/v1/jobs/b", {"labels": {"team": "etl"}}).status == 200
    assert call("DELETE", "/v1/jobs/a").status == 200
    assert ids(feed.runs(label="team:etl")) == ["b", "a"]

    # Runs of an earlier job with the same id: its labels are unknown.
    assert call("POST", "/v1/jobs", MANUAL | {"jobId": "a", "labels": LABELS["a"]}).status == 201
    assert ids(feed.runs(label="team:etl")) == ["b"]


@pytest.mark.parametrize("limit", ["1", "50"])
def test_dead_runs(system: Deployment, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    clock: Clock = stopped_clock(monkeypatch)
    clock.advance(hours=-1)
    jobs = {job_id: system.register(jobId=job_id, labels=LABELS[job_id]) for job_id in "abc"}
    clock.advance(hours=1)
    for minutes, job_id in enumerate("abbbbbbc", start=1):
        dead(system, jobs[job_id], clock, minutes)

    assert of_all_pages(Feed(system), state="DEAD", label="team:etl", limit=limit) == ["a", "c"]


def test_a_restricted_key_reaches_no_more_jobs(feed: Feed) -> None:
    for job_id in "abc":
        feed.start(job_id)
    feed.deliver()
    key = labelled_key("123456789012", {"env": "prod"})

    for label, found in (("team:etl", ["a"]), ("team:ops", [])):
        answer = feed.system.call("GET", "/v1/executions", query={"label": label}, authorizer=key)
        assert ids(answer.document) == found


@pytest.mark.parametrize(
    "label", ["team", ":etl", ",".join(f"l{n}:x" for n in range(100)), "team:a,team:b"]
)
@pytest.mark.parametrize("more", [{}, {"state": "DEAD"}, {"jobId": "a"}])
def test_refusals(system: Deployment, label: str, more: dict[str, Any]) -> None:
    query = {"label": label, **more}
    assert_problem(system.call("GET", "/v1/executions", query=query), 422, field="label")
