"""A caller of an API that may be unavailable for a moment: each request is repeated until it has an
answer.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any
from uuid import uuid4

import httpx2

from tests import crons
from tests.e2e.user import Document, until

LONG = 300.0 if crons.LONG else 120.0
"""Seconds after which a caller stops waiting for a state."""
_TRIES = 10
_OPEN = {"PENDING", "RUNNING"}


class Caller:
    """A user who repeats a request with its idempotency key when the API is unavailable."""

    def __init__(self, api: httpx2.Client) -> None:
        self._api = api

    def call(self, method: str, path: str, body: object = None) -> Document:
        """The answer, or an empty document to a DELETE that an earlier try has carried out."""
        headers = {"Idempotency-Key": uuid4().hex} if method == "POST" else {}
        answer = self._api.request(method, path, json=body, headers=headers)
        for _ in range(_TRIES):
            if answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
                break
            time.sleep(0.5)
            answer = self._api.request(method, path, json=body, headers=headers)
            if method == "DELETE" and answer.status_code == HTTPStatus.NOT_FOUND:
                return {}
        assert answer.is_success, answer.text
        document: Document = answer.json()
        return document

    def create(self, **definition: Any) -> str:
        return str(self.call("POST", "/v1/jobs", definition)["jobId"])

    def job(self, job: str) -> Document:
        return self.call("GET", f"/v1/jobs/{job}")

    def runs(self, job: str) -> list[Document]:
        """The records of *job*, newest first."""
        items: list[Document] = self.call("GET", f"/v1/jobs/{job}/executions")["items"]
        return items

    def ended(self, job: str, count: int = 1) -> list[Document]:
        """The records of *job*, newest first, once there are *count* and all of them have ended."""

        def all_ended() -> list[Document] | None:
            runs = self.runs(job)
            over = [run for run in runs if run["state"] not in _OPEN]
            return over if len(over) >= count == len(runs) else None

        runs: list[Document] = until(all_ended, f"{count} runs of {job}", within=LONG)
        return runs

    def succeeded(self, job: str, count: int = 1) -> list[Document]:
        """The runs of *job*, once *count* of them have ended; all of them succeeded."""
        runs = self.ended(job, count)
        assert {run["state"] for run in runs} == {"SUCCEEDED"}, runs
        return runs

    def run_in(self, job: str, state: str) -> Document:
        """The only run of *job*, once it is in *state*."""

        def there() -> Document | None:
            runs = self.runs(job)
            return runs[0] if [run["state"] for run in runs] == [state] else None

        run: Document = until(there, f"a run of {job} in state {state}", within=LONG)
        return run

    def completed(self, job: str) -> None:
        """Return once *job* is COMPLETED."""
        until(lambda: self.job(job)["state"] == "COMPLETED", f"the end of {job}", within=LONG)
