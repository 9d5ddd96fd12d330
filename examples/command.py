"""Runs the command in the payload, as cron does: by /bin/sh. Its exit code is that of the run."""

import subprocess
import sys

import nextfire_job as job

payload = job.payload()
ended = subprocess.run(
    ["/bin/sh", "-c", payload["command"]], input=payload.get("input", ""), text=True, check=False
)
sys.exit(ended.returncode if ended.returncode >= 0 else 128 - ended.returncode)
