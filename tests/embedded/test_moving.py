"""Jobs move from the embedded stack to another one with `nextfire export` and `nextfire apply`."""

import subprocess
import sys
from pathlib import Path

from nextfire import Client
from nextfire.client.bearer import Bearer
from nextfire_cli.local.cdk import inherited_environment
from nextfire_cli.local.embedded import EmbeddedInfo, EmbeddedStack
from tests.embedded.conftest import ROOT, Stack
from tests.places import host_folder

PIPELINE = """
pipeline: moved
jobs:
  - jobId: moved-nightly
    type: CRON
    schedule: 0 3 * * *
    timezone: Europe/Berlin
    target: {handler: counting}
    payload: {table: orders}
  - jobId: moved-load
    type: AFTER
    after: [{job: moved-nightly}]
    target: {handler: counting}
    retryPolicy: {maxAttempts: 7}
"""


def nextfire(info: EmbeddedInfo, *arguments: str) -> str:
    """Run the command for the stack *info* in a folder without a stack."""
    done = subprocess.run(
        [Path(sys.executable).with_name("nextfire"), *arguments],
        cwd="/",
        env={
            **inherited_environment(),
            "NEXTFIRE_ENDPOINT": info.endpoint,
            "NEXTFIRE_API_KEY": info.api_key,
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


def definitions(info: EmbeddedInfo) -> list[dict[str, object]]:
    """The jobs of the pipeline without what belongs to one stack."""
    with Client(info.endpoint, auth=Bearer(info.api_key)) as client:
        jobs = [client.get_job(job_id).document for job_id in ("moved-nightly", "moved-load")]
    names = ("type", "schedule", "timezone", "target", "payload", "after", "retryPolicy", "labels")
    return [{name: job.get(name) for name in names} for job in jobs]


def test_jobs_move_with_export_and_apply(stack: Stack, scratch: Path) -> None:
    file = scratch / "jobs.yaml"
    file.write_text(PIPELINE)
    nextfire(stack.info, "apply", "-f", str(file), "--yes")

    file.write_text(nextfire(stack.info, "export", "--pipeline", "moved"))
    state = host_folder("moved-nextfire-")
    state.chmod(0o711)
    with EmbeddedStack(state, sources=ROOT).running(lambda _line: None) as other:
        nextfire(other, "apply", "-f", str(file), "--yes")

        assert definitions(other) == definitions(stack.info)
