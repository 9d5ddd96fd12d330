"""`nextfire endpoints test`: makes one call, by a job that it creates for this."""

import contextlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import typer

from nextfire import Client
from nextfire.domain.run import RunState
from nextfire_cli.documents import Document
from nextfire_cli.errors import CliError
from nextfire_cli.job_fields import JOB_FIELDS

_POLL = 0.25
_STARTS_WITHIN = 60.0
"""Seconds until an executor starts the call."""
_SILENT = 3.0
"""Seconds until a message says what the test waits for."""
_TAKEN_FROM = ("target", "payload", "timeoutSec", "labels")
"""The fields of a job that matter for its call, or for the API key that creates it."""


def job_of(url: str | None, document: Document) -> Document:
    """The job that makes the call of *document*, to *url* if given.

    Raises:
        typer.BadParameter: Neither gives a URL.
    """
    taken = {name: document[name] for name in _TAKEN_FROM if name in document}
    target = dict(taken.get("target", {}))
    call = dict(target.get("http") or {}) | ({"url": url} if url else {})
    if "url" not in call:
        raise typer.BadParameter("give the URL, or a --file with target.http", param_hint="URL")
    return {
        **taken,
        "jobId": f"endpoint-test-{secrets.token_hex(4)}",
        "name": "nextfire endpoints test",
        "type": "MANUAL",
        "target": {**target, "http": {**call, "recordRequest": True}},
        "retryPolicy": {"maxAttempts": 1},
    }


@dataclass(frozen=True)
class EndpointTest:
    """Makes the call of *job* once. *say*: prints a message. *keep*: do not delete the job."""

    client: Client
    job: Document
    say: Callable[[str], None]
    keep: bool = False

    def play(self) -> Document:
        """Return the execution, once its attempt has ended.

        Raises:
            CliError: The job was rejected, or no attempt ended in time.
        """
        execution_id = None
        try:
            self.client.create_job(self.job)
            started = self.client.run_job(self.job["jobId"], reason="nextfire endpoints test")
            execution_id = started.document["executionId"]
            return self._attempted(execution_id)
        finally:
            self._clean_up(execution_id)

    def _attempted(self, execution_id: str) -> Document:
        timeout = self.job.get("timeoutSec", JOB_FIELDS["timeoutSec"].default)
        began = time.monotonic()
        until, silent_until = began + _STARTS_WITHIN + timeout, began + _SILENT
        pool = self.job["target"].get("pool", "default")
        endpoints = f"nextfire endpoints list --pool {pool}"
        while True:
            run = self.client.get_execution(execution_id).document
            if attempt_of(run) or RunState(run["state"]).ended:
                return run
            if time.monotonic() > silent_until:
                silent_until = until
                self.say(
                    f"Waiting up to {_STARTS_WITHIN + timeout:.0f} s for the call. Its endpoint "
                    f"may be PAUSED or OPEN: {endpoints}. Ctrl-C ends the test."
                )
            if time.monotonic() > until:
                raise CliError(
                    f"The call was not made within {_STARTS_WITHIN + timeout:.0f} s.",
                    f"See whether its endpoint is PAUSED or OPEN, or has a limit: {endpoints}",
                )
            time.sleep(_POLL)

    def _clean_up(self, execution_id: str | None) -> None:
        """Cancel what still waits, such as a call that got 503, and delete the job."""
        if execution_id is not None:
            # It has ended, or the API does not answer: then the job ends it.
            with contextlib.suppress(CliError):
                self.client.cancel_execution(execution_id, reason="the test has ended")
        if not self.keep:
            with contextlib.suppress(CliError):
                self.client.delete_job(self.job["jobId"])


def attempt_of(run: Document) -> Document | None:
    """The first attempt of *run*, if it has ended."""
    attempts: list[Document] = run.get("attempts", [])
    return attempts[0] if attempts and "outcome" in attempts[0] else None
