"""The shell's completion of ids, asked as bash asks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.user import soon
from tests.embedded.conftest import EmbeddedUser, Stack


def completed(stack: Stack, folder: Path, typed: str) -> list[str]:
    """The words that bash offers for the last one of *typed*."""
    done = subprocess.run(
        [Path(sys.executable).with_name("nextfire")],
        cwd=folder,
        env={
            "PATH": os.defpath,
            "HOME": str(folder),
            "NEXTFIRE_ENDPOINT": stack.info.endpoint,
            "NEXTFIRE_API_KEY": stack.info.api_key,
            "_NEXTFIRE_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert not done.stderr
    return done.stdout.split()


def test_the_shell_completes_the_ids_of_jobs_and_runs(user: EmbeddedUser, scratch: Path) -> None:
    job = user.once(soon(), handler="counting", jobId="zz-completed-1")
    [run] = user.ended(job)

    jobs = completed(user.stack, scratch, "nextfire jobs get zz-comp")
    runs = completed(user.stack, scratch, "nextfire runs get zz-comp")

    assert (jobs, runs) == (["zz-completed-1"], [run["executionId"]])
