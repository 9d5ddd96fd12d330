"""The unmodified worker process, with a record of the times at which outcomes were stored.

``python -m benchmarks.recorder FILE`` writes one line per outcome: run id, seconds since 1970.
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
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.run import RunState


def main(recorded: Path) -> None:
    """Serve the pool named in the environment until SIGTERM."""
    os.environ["NEXTFIRE_AWS_CLIENT"] = "boto3"  # its hooks count the calls
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
