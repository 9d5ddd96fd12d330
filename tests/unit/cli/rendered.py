"""Documents of the API as the command shows them."""

from rich.console import Console, RenderableType

RUN = {
    "executionId": "job_0123456789abcdef.20260524T100000000Z-0123456789abcdef",
    "jobId": "job_0123456789abcdef",
    "state": "SUCCEEDED",
    "scheduledAt": "2026-05-24T10:00:00Z",
    "dispatchedAt": "2026-05-24T10:00:00.031Z",
    "startedAt": "2026-05-24T10:00:00.120Z",
    "finishedAt": "2026-05-24T10:00:01.37Z",
    "attempt": 1,
    "exitCode": 0,
    "reason": "exit code 0",
    "worker": "w1",
    "stdout": "hello [bold]you[/]\n",
}
JOB = {
    "jobId": "job_0123456789abcdef",
    "name": "[red]nightly invoices of everybody",
    "state": "ACTIVE",
    "type": "CRON",
    "schedule": "*/5 3-23 * * 1-5",
    "timezone": "America/Los_Angeles",
    "target": {"pool": "batch-etl", "handler": "generate_invoices"},
    "nextFireAt": "2026-05-24T10:00:00Z",
}


def shown(view: RenderableType, width: int = 100) -> str:
    console = Console(width=width, record=True, file=None, quiet=False, highlight=False)
    with console.capture() as capture:
        console.print(view, crop=False)
    return capture.get()
