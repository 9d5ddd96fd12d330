"""Concurrent requests to the running API, each in its own process."""

from __future__ import annotations

import secrets
from concurrent.futures import ThreadPoolExecutor

import httpx2

from tests.e2e.conftest import Stack

TOGETHER = 8
PATIENCE = 120.0
"""Maximum seconds per request: the local stack starts a process for each, all at once."""
MANUAL = {"type": "MANUAL", "target": {"handler": "hello"}}


def test_requests_with_one_key_make_one_job(stack: Stack) -> None:
    label = secrets.token_hex(4)
    headers = {"Idempotency-Key": f"together-{label}"}

    with stack.api() as api:

        def create(_: int) -> httpx2.Response:
            job = MANUAL | {"labels": {"together": label}}
            return api.post("/v1/jobs", json=job, headers=headers, timeout=PATIENCE)

        with ThreadPoolExecutor(TOGETHER) as threads:
            answers = list(threads.map(create, range(TOGETHER)))
        found = api.get("/v1/jobs", params={"label": f"together:{label}"}).json()["items"]
        api.delete(f"/v1/jobs/{found[0]['jobId']}")

    assert {answer.status_code for answer in answers} == {201}
    assert {answer.text for answer in answers} == {answers[0].text}
    assert [job["jobId"] for job in found] == [answers[0].json()["jobId"]]


def test_of_changes_of_one_version_one_is_made(stack: Stack) -> None:
    with stack.api() as api:
        made = api.post("/v1/jobs", json=MANUAL).raise_for_status()
        path = f"/v1/jobs/{made.json()['jobId']}"

        def change(number: int) -> httpx2.Response:
            body, seen = {"name": f"n{number}"}, {"If-Match": tag}
            return api.patch(path, json=body, headers=seen, timeout=PATIENCE)

        winners = []
        for _ in range(2):
            tag = api.get(path).headers["etag"]
            with ThreadPoolExecutor(TOGETHER) as threads:
                answers = list(threads.map(change, range(TOGETHER)))
            assert {answer.status_code for answer in answers} == {200, 412}
            winners += [answer.json() for answer in answers if answer.status_code == 200]
        last = api.delete(path).json()

    assert [each["revision"] for each in winners] == [2, 3]
    assert last["name"] == winners[-1]["name"]
