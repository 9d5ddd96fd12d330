"""The worker of a parent sends the runs of its children itself."""

import os
import signal

from tests.e2e.test_policies import SLEEPING
from tests.e2e.test_sequences import run_of, start, user
from tests.e2e.user import User
from tests.embedded.conftest import Stack

__all__ = ["user"]


def test_a_child_runs_while_the_watcher_stands_still(stack: Stack, user: User) -> None:
    stack.put_script("default", "sleeping", SLEEPING)
    what = {"target": {"handler": "sleeping"}}
    parent = user.create(type="MANUAL", payload={"sleep": 2}, **what)
    after = [{"job": parent["jobId"]}]
    child = user.create(type="AFTER", after=after, payload={"sleep": 0}, **what)
    start(user, parent)
    run_of(user, parent, "RUNNING")
    watcher = stack.pid_of("watcher")
    assert watcher is not None

    os.kill(watcher, signal.SIGSTOP)
    try:
        run_of(user, child, "SUCCEEDED")
    finally:
        os.kill(watcher, signal.SIGCONT)
