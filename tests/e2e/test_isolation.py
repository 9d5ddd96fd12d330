"""Scripts cannot affect their executor or each other."""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack, processes_of
from tests.e2e.user import User, soon, until

as_users_of_their_own = pytest.mark.skipif(
    os.geteuid() != 0, reason="scripts have dedicated users only if the executor is root"
)

HOSTILE = {
    "fork-bomb": """
import os, time
made = 0
try:
    for _ in range(2000):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError as error:
    print(made, error)
    raise SystemExit(7)
""",
    "flood": """
import sys
for _ in range(1024):
    sys.stdout.write(("x" * 1023 + "\\n") * 1024)
""",
    "glutton": """
held = bytearray(4 << 30)
""",
    "vandal": """
import os, shutil
home = os.environ["HOME"]
shutil.rmtree(home, ignore_errors=True)
print(home, os.listdir(home))
""",
    "daemon": """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(3):
            os.close(descriptor)
        time.sleep(600)
    os._exit(0)
os.wait()
""",
}
SPY = """
import json, os, pathlib, nextfire_job
payload = nextfire_job.payload()
ours = {str(os.getpid()), "self", "thread-self"}
looked = {"environ": [], "mem": [], "fd": []}
processes = [each for each in pathlib.Path("/proc").glob("[0-9]*") if each.name not in ours]
for process in processes:
    for name in ("environ", "mem"):
        try:
            with open(process / name, "rb") as file:
                if name == "mem":
                    looked["mem"].append(process.name)
                elif file.read():
                    looked["environ"].append(process.name)
        except OSError:
            pass
    try:
        os.listdir(process / "fd")
        looked["fd"].append(process.name)
    except OSError:
        pass
files = []
for path in [*payload["files"], os.path.expanduser("~/.aws/config"), "/root/.aws/credentials"]:
    try:
        files.append(open(path).read())
    except OSError:
        pass
nextfire_job.result({
    "seen": len(processes),
    "parent": str(os.getppid()) in {each.name for each in processes},
    "looked": looked,
    "files": files,
    "own": [name for name in os.environ if name.startswith("AWS")],
    "user": os.getuid(),
})
"""
NEIGHBOUR = """
import os, pathlib, time, nextfire_job
payload = nextfire_job.payload()
secret = pathlib.Path(os.environ["HOME"], "secret")
secret.write_text(os.environ["MINE"])
with open(payload["marks"], "a") as marks:
    marks.write(str(secret) + " " + str(os.getpid()) + "\\n")
while len(marked := pathlib.Path(payload["marks"]).read_text().split()) < 4:
    time.sleep(0.05)
found = []
for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
    try:
        found.append(path.read_bytes().decode())
    except OSError:
        pass
for path in marked[::2]:
    try:
        found.append(pathlib.Path(path).read_text())
    except OSError:
        pass
with open(payload["marks"], "a") as marks:
    marks.write("looked looked\\n")
while len(pathlib.Path(payload["marks"]).read_text().split()) < 8:
    time.sleep(0.05)
nextfire_job.result([name for name, value in payload["secrets"].items() if value in str(found)])
"""


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    scripts = {
        **HOSTILE,
        "spy": SPY,
        "neighbour": NEIGHBOUR,
        "well": "print('well')",
    }
    for name, source in scripts.items():
        stack.put_script("default", name, source)
    with stack.api() as http:
        yield User(stack, http, scratch)


def test_whatever_scripts_do_their_worker_serves_on_and_nothing_of_them_stays(user: User) -> None:
    policy = {"maxAttempts": 1}
    workers = user.stack.workers()
    jobs = {name: user.once(soon(2), handler=name, retryPolicy=policy) for name in HOSTILE}

    runs = {name: user.ended(job)[0] for name, job in jobs.items()}

    assert {name: (run["state"], run["exitCode"]) for name, run in runs.items()} == {
        "fork-bomb": ("DEAD", 7),
        "flood": ("SUCCEEDED", 0),
        "glutton": ("DEAD", 1),
        "vandal": ("SUCCEEDED", 0),
        "daemon": ("SUCCEEDED", 0),
    }
    assert "Resource temporarily unavailable" in runs["fork-bomb"]["stdout"]
    home, _, left = runs["vandal"]["stdout"].partition(" ")
    assert left == "[]\n"
    assert "MemoryError" in runs["glutton"]["stderr"]
    assert len(runs["flood"]["stdout"]) < 20_000
    assert "bytes cut" in runs["flood"]["stdout"]
    for name, run in runs.items():
        assert processes_of(run["executionId"]) == [], name
    top = Path(home).parent
    folders = top.name.rpartition("-")[0] + "-*"
    # A slow removal continues after the run has ended.
    until(lambda: not [*(user.stack.state / "tmp").glob(folders)], "the removal of all folders")
    assert top.parent == user.stack.state / "tmp"
    assert user.stack.workers() == workers
    # As many runs as the workers have slots: no slot is lost.
    others = [user.once(soon(1), handler="well") for _ in range(8)]
    assert {user.ended(job)[0]["stdout"] for job in others} == {"well\n"}
    for name in ("fork-bomb", "glutton"):
        user.dead_letter("default", jobs[name]["jobId"])


@as_users_of_their_own
def test_a_script_reads_nobodys_credentials(user: User) -> None:
    aws = user.stack.state / "aws"
    files = [str(path) for path in aws.iterdir()]
    assert files, "workers store their profile in a file"
    job = user.once(soon(1), handler="spy", payload={"files": files})

    found = user.result(job)

    assert (found["seen"], found["parent"]) == (0, False)
    assert found["looked"] == {"environ": [], "mem": [], "fd": []}
    assert found["files"] == []
    assert found["own"] == []
    assert found["user"] != 0


@as_users_of_their_own
def test_scripts_side_by_side_do_not_see_each_other(user: User) -> None:
    values = {name: secrets.token_hex(16) for name in ("left", "right")}
    at = soon(2)
    jobs = {
        name: user.once(
            at,
            handler="neighbour",
            payload={"secrets": values},
            timeoutSec=30,
            target={"pool": "default", "handler": "neighbour", "env": {"MINE": value}},
        )
        for name, value in values.items()
    }

    seen = {name: user.result(job) for name, job in jobs.items()}

    assert seen == {"left": ["left"], "right": ["right"]}
