"""The program of procrastinate. It runs in its own environment, without nextfire."""

import asyncio
import json
import subprocess
import sys
from datetime import datetime
from typing import Any

import procrastinate  # type: ignore[import-not-found] # installed for the benchmark only

_TASK = "script"
app: Any = procrastinate.App(connector=procrastinate.PsycopgConnector(min_size=1, max_size=20))


async def serve(slots: str, poll: str, *command: str) -> None:
    """Run jobs until a signal: *command* with the payload on stdin, in a process."""

    async def run_script(payload: str) -> None:
        process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE)
        await process.communicate(payload.encode())
        if process.returncode:
            raise RuntimeError(f"exit status {process.returncode}")

    app.task(name=_TASK)(run_script)
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await app.run_worker_async(
            concurrency=int(slots), fetch_job_polling_interval=float(poll), wait=True
        )


async def create() -> None:
    """Create the jobs on stdin."""
    by_instant: dict[str, list[dict[str, str]]] = {}
    for at, payload in json.load(sys.stdin):
        by_instant.setdefault(at, []).append({"payload": json.dumps(payload)})
    async with app.open_async():
        for at, jobs in by_instant.items():
            due = app.configure_task(name=_TASK, schedule_at=datetime.fromisoformat(at))
            await due.batch_defer_async(*jobs)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[2:]) if sys.argv[1] == "serve" else create())
