"""A supervisor whose worker runs one script and holds one message.

    python supervised.py FOLDER < script.py

Says ``worker <pid>``, what the script prints, what lives of it when its run has ended, and what
lives when the message is given back.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

from functions.worker import supervisor
from nextfire.adapters.scripts import process_table, sandboxes
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.adapters.sqs.run_queue import SqsDelivery
from nextfire.adapters.worker.journal import HeldMessage, WorkerJournal
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import ScriptCall
from tests.supervisors import Watch

NO_CLIENT: Any = None


class Echo(Watch):
    def output(self, stream: Stream, data: bytes) -> None:  # noqa: ARG002
        os.write(1, data)


def serve(journal: WorkerJournal) -> None:
    if os.environ.get("TEST_NAMESPACES") == "no":
        sandboxes.probe_host = lambda environment: HostFeatures(namespaces=False)  # type: ignore[attr-defined]  # noqa: ARG005
    runner = ProcessScriptRunner(temp_root=Path(sys.argv[1]), grace=timedelta(seconds=1))
    journal.hold([SqsDelivery(NO_CLIENT, "url", "body", "handle", "message", "group")])
    os.write(1, b"worker %d\n" % os.getpid())
    call = ScriptCall("script.py", SOURCE, "{}", timedelta(minutes=5), "acme")
    runner.run(call, Echo())
    living = process_table.descendants(os.getppid()) - {os.getpid()}
    os.write(1, b"ran; alive: %r\n" % living)


def give_back(held: Sequence[HeldMessage], died_at: float) -> None:  # noqa: ARG001
    living = process_table.descendants(os.getppid()) - {os.getpid()}
    os.write(1, b"gives %d back; alive: %r\n" % (len(held), living))


# The keepers of the scripts end them: the supervisor need not.
supervisor._ENDED_BY_KEEPERS = inf  # noqa: SLF001
SOURCE = sys.stdin.buffer.read()
sys.exit(supervisor.WorkerSupervisor(serve, give_back).run())
