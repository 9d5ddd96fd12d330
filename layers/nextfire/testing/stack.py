"""The stack of a test: API, watcher and workers in memory, under simulated time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Self

from nextfire.client import Client, ClientError, JobRequest
from nextfire.client.pipelines.apply import apply_plan, make_plan
from nextfire.domain.instants import isoformat
from nextfire.domain.message import decode_message
from nextfire.domain.quotas import Quotas, TenantQuotas
from nextfire.domain.run import RunState
from nextfire.responses.executions import ExecutionResponse, SequenceResponse
from nextfire.responses.jobs import JobResponse
from nextfire.testing import api, names
from nextfire.testing.calls import AwsFunction, HttpFunction
from nextfire.testing.kernel import Kernel
from nextfire.testing.processes import Processes
from nextfire.testing.scripts import ScriptFunction
from nextfire.usecases.dispatch.gates import Shares

DEFAULT_START = "2027-01-01T00:00:00Z"
MAX_TIMEOUT = timedelta(hours=11)
"""The longest `timeoutSec` of a job, as of a pool of workers."""


class Stack:
    """A whole scheduler in memory. Its time moves only when `advance` or `advance_to` is called,
    or when its client waits for a run.

    Jobs are created with the documents of the API, checked by the API's own code: errors are those
    of the client (`nextfire.Invalid`, `nextfire.NotFound`, …), with the same texts. Watcher and
    workers are those of the product; a run starts exactly at its instant, and takes no simulated
    time unless its function calls `ScriptRun.sleep`.

    A stack has one tenant. It is used by one thread. All instants that it returns are in UTC.

    Example:
        def test_a_failed_run_is_tried_again(nextfire_stack: Stack) -> None:
            stack = nextfire_stack
            stack.script("report", lambda run: {"rows": 3})
            stack.put("nightly", {
                "type": "CRON", "schedule": "0 3 * * *", "target": {"handler": "report"},
                "retryPolicy": {"maxAttempts": 3},
            })
            stack.fail("report", times=2)
            stack.advance(days=1)
            [run] = stack.runs("nightly")
            assert (run.state, run.attempt) == ("SUCCEEDED", 3)
    """

    def __init__(
        self,
        start: datetime | str = DEFAULT_START,
        *,
        pools: Sequence[str] = ("default",),
        call_pools: Sequence[str] = ("calls",),
        quotas: Mapping[str, int] | None = None,
        interpreter: str | None = None,
    ) -> None:
        """Create an empty stack.

        Args:
            start: The first instant, with an offset: ``2027-03-28T00:00:00+01:00``.
            pools: The pools that run scripts.
            call_pools: The pools that run HTTP callbacks and AWS calls.
            quotas: The tenant's quotas by name, such as ``{"runsPerMinute": 60}``. Default:
                unlimited.
            interpreter: The Python that runs script files, such as `sys.executable`. Default: the
                one of a worker, which is the base interpreter without installed packages.

        Raises:
            ValueError: *start* has no offset, or a quota is unknown.
        """
        targets = dict.fromkeys(pools, "scripts") | dict.fromkeys(call_pools, "calls")
        limits = TenantQuotas(default=Quotas.model_validate(quotas or {}))
        self._advancing = False
        self._kernel = Kernel(0, names.instant(start), interleaves=False, max_steps=float("inf"))
        self._processes = Processes(self._kernel, targets, Shares(quotas=limits))
        self._processes.scripts.interpreter = interpreter
        self._stores = self._processes.stores
        self._stores.secrets.remedy = 'The test has none: stack.secret("{name}", "value").'
        self.client: Client = api.client(
            self._stores,
            self._processes.faults.through,
            self._kernel.clock,
            targets,
            max_timeout=MAX_TIMEOUT,
            quotas=limits,
            advance=self.advance,
        )
        """The client of this stack's API, for what has no method here (docs/guide/client.md). Its
        `wait` and ``log(follow=True)`` let simulated time pass.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the client. Optional."""
        self.client.close()

    # Time

    @property
    def now(self) -> datetime:
        """The simulated instant, in UTC."""
        return self._kernel.clock.now()

    def advance(self, duration: timedelta = timedelta(), /, **units: float) -> datetime:
        """Let time pass: a `timedelta`, or units of it (``days=1``, ``minutes=5``). A day is 24
        hours, also over a clock change. Returns the new instant.

        Raises:
            ValueError: The duration is negative.
            RuntimeError: A function of this stack called it; use `ScriptRun.sleep` there.
        """
        return self.advance_to(self.now + duration + timedelta(**units))

    def advance_to(self, instant: datetime | str) -> datetime:
        """Let time pass until *instant*, with an offset. What is due at *instant* happens. Returns
        *instant* in UTC.

        Raises:
            ValueError: *instant* is in the past, or has no offset.
            RuntimeError: See `advance`.
        """
        to = names.instant(instant)
        if to < self.now:
            raise ValueError(f"{isoformat(to)} is before the stack's time, {isoformat(self.now)}.")
        if self._advancing:
            raise RuntimeError("A script cannot advance the stack: call run.sleep(minutes=5).")
        self._advancing = True
        try:
            self._kernel.run_to(to)
        finally:
            self._advancing = False
        self._processes.check()
        self._processes.idle()
        return self.now

    # Jobs

    def create(self, job: JobRequest | Mapping[str, Any]) -> JobResponse:
        """Create a job; see `nextfire.Client.create_job`."""
        return self.client.create_job(job)

    def put(self, job_id: str, job: JobRequest | Mapping[str, Any]) -> JobResponse:
        """Create the job, or change it to *job*; see `nextfire.Client.put_job`."""
        return self.client.put_job(job_id, job)

    def apply(self, file: Path | str) -> None:
        """Apply the file of a pipeline, as `nextfire apply -f FILE`.

        Raises:
            nextfire.ClientError: The file cannot be read, or an entry is invalid.
        """
        import typer  # noqa: PLC0415 - takes a while

        from nextfire_cli.pipelines import read_files  # noqa: PLC0415 - as typer

        try:
            pipelines = read_files([str(file)])
        except typer.BadParameter as error:
            remedy = 'Give the path of a pipeline: stack.apply("examples/pipeline.yaml").'
            raise ClientError(f"apply: {error.message}.", remedy) from error
        apply_plan(self.client, make_plan(self.client, pipelines))

    def change(self, job_id: str, changes: Mapping[str, Any]) -> JobResponse:
        """Change fields of a job; see `nextfire.Client.change_job`."""
        return self.client.change_job(job_id, changes)

    def delete(self, job_id: str) -> JobResponse:
        """Cancel a job; see `nextfire.Client.delete_job`."""
        return self.client.delete_job(job_id)

    def pause(self, job_id: str) -> JobResponse:
        """Pause a job; see `nextfire.Client.pause_job`."""
        return self.client.pause_job(job_id)

    def resume(self, job_id: str) -> JobResponse:
        """Resume a job; see `nextfire.Client.resume_job`."""
        return self.client.resume_job(job_id)

    def run(self, job_id: str, **options: Any) -> ExecutionResponse:
        """Run a job now; *options* as of `nextfire.Client.run_job`. It starts when time advances,
        also by nothing: ``stack.advance()``.
        """
        return self.client.run_job(job_id, **options)

    # What they run

    def script(
        self, name: str, function: ScriptFunction | None = None, *, path: Path | str | None = None
    ) -> None:
        """Provide the script *name* (`target.handler`) in all pools: *function* replaces it, or the
        file at *path* runs for real, in a process, which takes no simulated time.

        Args:
            name: The name, without ``.py``.
            function: Called with a `ScriptRun` for each attempt; returns the result of the run.
            path: A ``.py`` file. It is read at each attempt.

        Raises:
            ValueError: Neither or both of *function* and *path* are given, or *function* cannot be
                called.
            FileNotFoundError: The file does not exist.
        """
        if callable(function) == (path is not None):
            raise ValueError(
                f'Give a function or a path: stack.script("{name}", lambda run: None), or '
                f'stack.script("{name}", path="scripts/{name}.py").'
            )
        scripts = self._processes.scripts
        scripts.functions.pop(name, None)
        scripts.files.pop(name, None)
        if callable(function):
            scripts.functions[name] = function
        elif path is not None:
            if not Path(path).is_file():
                raise FileNotFoundError(f"{path}: no such script.")
            scripts.files[name] = Path(path)

    def http(self, url: str, function: HttpFunction) -> None:
        """Answer HTTP callbacks whose URL begins with *url*; of several, the longest counts.
        *function* gets an `HttpRequest` and returns an `HttpAnswer`, a status, or None for 200.

        Raises:
            ValueError: *url* is not the start of a URL.
        """
        names.check_url(url)
        self._processes.calls.http[url] = function

    def aws(self, action: str, function: AwsFunction) -> None:
        """Answer the AWS call *action*, such as ``sqs:SendMessage``. *function* gets its input and
        returns its output, or None; it raises `AwsError` for an error.

        Raises:
            ValueError: *action* has another form.
        """
        names.check_action(action)
        self._processes.calls.aws[action] = function

    def secret(self, name: str, value: str) -> None:
        """Store the secret or parameter *name*; ``name#key`` for one key of a secret.

        Raises:
            ValueError: A job cannot refer to *name*.
        """
        names.check_secret(name)
        self._stores.secrets.values[f"{api.TENANT}/{name}"] = value

    # What goes wrong

    def fail(self, script: str, times: int = 1) -> None:
        """Fail the next *times* attempts of *script*, exit code 1, without calling it.

        Raises:
            ValueError: The test has not provided the script.
        """
        names.check_script("fail", script, self._processes.scripts.names)
        self._processes.scripts.failures[script] += times

    def crash_worker(self, *, during: str, times: int = 1) -> None:
        """Kill the worker in the next *times* attempts of the script *during*: after its work is
        done, and before that is recorded. Another worker takes the run over when the lease (60 s)
        has expired, as the next attempt. `ScriptRun.crash` does this anywhere in a function.

        Raises:
            ValueError: The test has not provided the script.
        """
        names.check_script("crash_worker", during, self._processes.scripts.names)
        self._processes.scripts.crashes[during] += times

    def throttle(self, call: str, times: int = 1) -> None:
        """Refuse the next *times* calls of a store, as AWS does under load. *call*: a store and a
        method of `nextfire.domain.ports`, such as ``due.put``, ``queue.send``, ``runs.advance``.

        Raises:
            ValueError: Unknown call.
        """
        names.check_call(call, self._stores)
        self._processes.faults.refuse(call, times)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """In this context neither watcher nor workers start anything; the API answers. Runs that
        are running continue. Afterwards, the misfire policy decides what runs.
        """
        self._processes.down = True
        try:
            yield
        finally:
            self._processes.restart()

    # What happened

    def runs(
        self, job_id: str | None = None, *, state: str | None = None
    ) -> list[ExecutionResponse]:
        """The runs of a job, or of all jobs, by scheduled instant; with *state* those in it.
        Occurrences that no worker has taken are not among them.

        Raises:
            ValueError: Unknown *state*.
            nextfire.NotFound: The job does not exist.
        """
        wanted = None if state is None else RunState(state)
        jobs = [job_id] if job_id else [job.job_id for job in self.client.jobs()]
        found = [run for each in jobs for run in self.client.executions(each)]
        matching = [run for run in found if wanted in {None, run.state}]
        return sorted(matching, key=lambda run: run.scheduled_at)

    def result(self, run: ExecutionResponse | str) -> Any:
        """The result of a run, or of an execution id: JSON; None if it has none."""
        execution_id = run if isinstance(run, str) else run.execution_id
        return self.client.get_execution(execution_id).result

    def log(self, run: ExecutionResponse | str) -> list[str]:
        """The lines that a run printed, on all attempts."""
        execution_id = run if isinstance(run, str) else run.execution_id
        return [line.text for line in self.client.log(execution_id)]

    def tree(self, run: ExecutionResponse | str) -> SequenceResponse:
        """The runs of the sequence of a run; see `nextfire.Client.get_chain`."""
        return self.client.get_chain(run if isinstance(run, str) else run.execution_id)

    @property
    def events(self) -> list[dict[str, Any]]:
        """The published events, in order: `detail-type` and `detail`, as in
        docs/reference/events.md.
        """
        published = self._stores.events.published
        return [{"detail-type": each.kind.value, "detail": each.detail} for each in published]

    @property
    def dead_letters(self) -> list[str]:
        """The execution ids of the messages in the dead-letter queues, in order."""
        letters = self._stores.dead_letters.letters
        return [decode_message(body).key.execution_id for body, _ in letters]
