"""A worker process whose scripts end immediately: it claims and finishes runs.

``python -m benchmarks.consumer FILE`` records each received message in FILE: job, run, message id,
and the time at which the queue accepted it (milliseconds since 1970), as one JSON list per line.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3

import nextfire.wiring.execution as wiring
from functions.worker import worker
from nextfire.adapters.worker.journal import WorkerJournal
from nextfire.domain.message import decode_message
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit, Supervisor


class _AtOnce:
    """A `ScriptRunner` that starts no process."""

    def __init__(self, **_: object) -> None:
        pass

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:  # noqa: ARG002
        return ScriptExit(0, "", "")


def main(received: Path) -> None:
    """Serve the pool named in the environment until SIGTERM."""
    os.environ["NEXTFIRE_AWS_CLIENT"] = "boto3"  # its hooks count the calls
    boto3.setup_default_session()
    events: Any = boto3.DEFAULT_SESSION.events  # type: ignore[union-attr]
    with received.open("w") as lines:

        def ask_when(params: dict[str, Any], **_: object) -> dict[str, Any]:
            names = [*params.get("MessageSystemAttributeNames", []), "SentTimestamp"]
            return {**params, "MessageSystemAttributeNames": names}

        def note(parsed: dict[str, Any], **_: object) -> None:
            for message in parsed.get("Messages", []):
                key = decode_message(message["Body"]).key
                sent_ms = int(message["Attributes"]["SentTimestamp"])
                line = [key.job.job_id, key.run_id, message["MessageId"], sent_ms]
                lines.write(json.dumps(line) + "\n")
            lines.flush()

        events.register("provide-client-params.sqs.ReceiveMessage", ask_when)
        events.register("after-call.sqs.ReceiveMessage", note)
        with patch.object(wiring, "ProcessScriptRunner", _AtOnce):
            worker.main(WorkerJournal())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
