"""The worker process as it is, which also writes down when a run's outcome was on record.

``python -m benchmarks.recorder FILE``: one line an outcome, its run id and seconds since 1970.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import boto3

from functions.worker import worker
from nextfire.adapters.worker_journal import WorkerJournal
from nextfire.domain.run import RunState


def main(recorded: Path) -> None:
    """Serve the pool that the environment names until SIGTERM."""
    os.environ["NEXTFIRE_AWS_CLIENT"] = "boto3"  # whose hooks count the calls
    boto3.setup_default_session()
    events: Any = boto3.DEFAULT_SESSION.events  # type: ignore[union-attr]
    with recorded.open("w") as lines:

        def note(parsed: dict[str, Any], **_: object) -> None:
            run = parsed.get("Attributes", {})
            if run.get("state", {}).get("S") == RunState.SUCCEEDED:
                lines.write(json.dumps([run["run_id"]["S"], time.time()]) + "\n")
                lines.flush()

        events.register("after-call.dynamodb.UpdateItem", note)
        worker.main(WorkerJournal())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
