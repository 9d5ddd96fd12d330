"""Runs one attempt: fetches the script and its inputs, runs it, and returns its result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta

from nextfire.dataclass import dataclass
from nextfire.domain.attempt import AttemptOutcome, Result, rejection
from nextfire.domain.errors import InvalidInputError, NotFoundError, UnavailableError
from nextfire.domain.ids import RunKey
from nextfire.domain.instants import isoformat
from nextfire.domain.job import Job
from nextfire.domain.last_line import explained, last_line
from nextfire.domain.masking import Masker
from nextfire.domain.message import recordable
from nextfire.domain.ports.access import JobRole, Secrets
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.scripts import (
    Directive,
    ScriptCall,
    ScriptExit,
    ScriptRunner,
    ScriptStore,
)
from nextfire.domain.ports.targets import AttemptResult, RunControl
from nextfire.domain.run import Run
from nextfire.domain.script import locate


@dataclass(frozen=True, slots=True)
class ScriptTarget:
    """Runs the scripts of one executor. `job_role`: their IAM role, if the pool has one."""

    scripts: ScriptStore
    runner: ScriptRunner
    secrets: Secrets
    job_role: JobRole | None
    clock: Clock
    bucket: str

    def admit(self, job: Job, run: RunKey, now: datetime, *, first: bool) -> None:
        """Scripts always start."""

    def release(self, job: Job, run: RunKey) -> None:
        """Scripts take nothing."""

    def attempt(
        self, job: Job, run: Run, supervisor: RunControl, longest: timedelta
    ) -> AttemptResult:
        """Run the script of *job* for *run*, for at most *longest*."""
        masker = Masker()
        fetched: list[str] = []
        attempted = self._attempt(job, run, supervisor, longest, masker, fetched)
        if fetched:
            result = replace(attempted.result, script_sha256=fetched[0])
            attempted = replace(attempted, result=result)
        reason = recordable(masker.text(attempted.result.reason))
        return replace(attempted, result=replace(attempted.result, reason=reason))

    def _attempt(
        self,
        job: Job,
        run: Run,
        supervisor: RunControl,
        longest: timedelta,
        masker: Masker,
        fetched: list[str],
    ) -> AttemptResult:
        """The attempt; the script's digest is appended to *fetched* once it is known."""
        definition = job.definition
        began_at = self.clock.now()
        timeout = definition.timeout
        started = False
        try:
            source = locate(definition.target, bucket=self.bucket, tenant=job.key.tenant)
            script = self.scripts.fetch(source)
            fetched.append(script.sha256)
            environment = self._environment(job, masker)
            supervisor.load()
            with self._credentials(job, masker) as credentials:
                # The preparation counts towards the limit of this host.
                timeout = min(timeout, longest - (self.clock.now() - began_at))
                call = ScriptCall(
                    name=source.name,
                    source=script.content,
                    payload=json.dumps(definition.payload) if run.payload is None else run.payload,
                    timeout=timeout,
                    tenant=job.key.tenant,
                    environment={
                        **environment,
                        **credentials,
                        **_context(job, run, self.clock.now() + timeout),
                    },
                    masker=masker,
                    upstream=run.upstream,
                )
                # Nothing has extended the lease so far.
                verdict = supervisor.ask()
                started = verdict is Directive.CONTINUE
                ended = (
                    self.runner.run(call, supervisor)
                    if started
                    else ScriptExit(None, "", "", stopped=verdict)
                )
        except (NotFoundError, InvalidInputError) as error:
            return AttemptResult.failed(str(error), permanent=True)
        except UnavailableError as error:
            # S3, Secrets Manager, Parameter Store or STS did not answer.
            return AttemptResult.failed(str(error), unavailable=not started)
        except Exception as error:  # noqa: BLE001 — it is recorded; the worker continues
            return AttemptResult.failed(f"could not be run: {type(error).__name__}: {error}")
        result = _result(ended, timeout, supervisor)
        given = ended.result if result.outcome is AttemptOutcome.SUCCEEDED else None
        return AttemptResult(result, ended.stopped, given)

    def _environment(self, job: Job, masker: Masker) -> dict[str, str]:
        """`target.env` with its references resolved; the resolved values are added to *masker*."""
        environment = {}
        for name, value in job.definition.target.env.items():
            if isinstance(value, str):
                environment[name] = value
            else:
                environment[name] = self.secrets.resolve(job.key.tenant, value)
                masker.add(environment[name])
        return environment

    def _credentials(self, job: Job, masker: Masker) -> AbstractContextManager[Mapping[str, str]]:
        if self.job_role is None:
            return nullcontext({})
        return self.job_role.lent(job.key, masker)


def _result(ended: ScriptExit, timeout: timedelta, supervisor: RunControl) -> Result:
    permanent = False
    if ended.error is not None:
        outcome, reason, permanent = AttemptOutcome.FAILED, ended.error, ended.permanent
    elif ended.stopped is Directive.CANCEL:
        outcome, reason = AttemptOutcome.CANCELLED, supervisor.cancel_reason
    elif ended.stopped is Directive.HAND_BACK:
        outcome, reason = AttemptOutcome.HANDED_BACK, "its worker shut down"
    elif ended.timed_out:
        outcome = AttemptOutcome.TIMED_OUT
        reason = f"did not end within {int(timeout.total_seconds())} s"
    elif ended.exit_code == 0 and (rejected := rejection("result", ended.result or b"")):
        outcome, reason, permanent = AttemptOutcome.FAILED, rejected, True
    elif ended.exit_code == 0:
        outcome, reason = AttemptOutcome.SUCCEEDED, "exit code 0"
    elif ended.exit_code is not None and ended.exit_code < 0:
        outcome, reason = AttemptOutcome.FAILED, f"killed by signal {-ended.exit_code}"
    else:
        said = explained(last_line(ended.last_lines or ended.stderr))
        reason = f"exit code {ended.exit_code}{': ' if said else ''}{said}"
        outcome = AttemptOutcome.FAILED
    return Result(
        outcome,
        reason,
        ended.exit_code,
        ended.stdout,
        ended.stderr,
        permanent,
        unavailable=ended.unavailable,
    )


def _context(job: Job, run: Run, deadline: datetime) -> dict[str, str]:
    return {
        "NEXTFIRE_EXECUTION_ID": run.key.execution_id,
        "NEXTFIRE_SCHEDULED_AT": isoformat(run.key.scheduled_at),
        "NEXTFIRE_ATTEMPT": str(run.attempt),
        "NEXTFIRE_DEADLINE": isoformat(deadline),
        "NEXTFIRE_JOB_ID": job.key.job_id,
        "NEXTFIRE_TENANT": job.key.tenant,
    }
