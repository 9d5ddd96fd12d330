"""Parts of the embedded stack hang instead of dying. Takes more than a minute, so in `make
test-long` only.
"""

import os
import signal

import pytest

from functions.embedded.pulse import LOOK_EVERY, LOOKS
from tests.crons import LONG
from tests.e2e.test_runs import executed, in_state
from tests.e2e.user import soon, until
from tests.embedded.conftest import EmbeddedUser, Stack

pytestmark = pytest.mark.skipif(not LONG, reason="takes a minute; run with NEXTFIRE_LONG=1")


def test_parts_that_hang_are_replaced_and_their_runs_taken_over(
    stack: Stack, user: EmbeddedUser
) -> None:
    job = user.once(soon(1), handler="counting", payload={"sleep": 600})
    run = in_state(user, job, "RUNNING")
    until(user.marked, "the start of the script")
    workers = stack.workers()
    parts = {part: stack.pid_of(part) for part in ("api", "watcher")}
    within = LOOK_EVERY * (LOOKS + 4)

    for process in (*workers, *parts.values()):
        assert process is not None
        os.kill(process, signal.SIGSTOP)
    until(
        lambda: all(stack.pid_of(part) not in {None, process} for part, process in parts.items()),
        "other processes of the parts",
        within=within,
    )
    until(lambda: stack.workers() and not {*workers} & {*stack.workers()}, "other workers")
    until(lambda: user.marked() == [run["executionId"]] * 2, "the takeover")

    for part in parts:
        assert stack.info.parts()[part]["lastDeath"] == "killed because it hung for a minute"
    executed(user, run, "cancel", 202)
