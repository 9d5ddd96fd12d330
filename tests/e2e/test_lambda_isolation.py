"""What a script in a Lambda function can find out about its executor, in the emulator."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Stack, processes_of
from tests.e2e.user import User, soon

SPY = """
import ctypes, json, os, socket
found = []
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid():
        for name in ("environ", "mem", "maps"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    if name == "mem" or b"AWS_" in file.read():
                        found.append(f"{name} of a process")
            except OSError:
                pass
for place in ("~/.aws/credentials", "~/.aws/config", "/root/.aws/credentials", "/var/task"):
    try:
        found.append("read " + open(os.path.expanduser(place)).read())
    except OSError:
        pass
found += [name for name in os.environ if name.startswith("AWS_")]
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"
refused = {
    "keyctl": libc.syscall(250 if x86 else 219, 0, -3, 0, 0, 0),
    "unshare": libc.unshare(0x10000000),
    "ptrace": libc.ptrace(16, os.getppid(), 0, 0),
    "io_uring": libc.syscall(425, 8, ctypes.create_string_buffer(120)),
    "vsock": libc.socket(40, 1, 0),
}
found += [name for name, result in refused.items() if result >= 0]
pid = os.fork()
if not pid:
    os.setsid()
    if os.fork():
        os._exit(0)
    import time
    for descriptor in range(3):
        os.close(descriptor)
    time.sleep(60)
print(json.dumps({"found": found, "mark": os.environ["NEXTFIRE_EXECUTION_ID"]}))
"""


@pytest.fixture
def user(stack: Stack, scratch: Path) -> Iterator[User]:
    stack.put_script("lambda", "lambda-spy", SPY)
    with stack.api() as http:
        yield User(stack, http, scratch)


def test_a_script_in_a_function_finds_nothing_of_its_executor(user: User) -> None:
    job = user.once(soon(1), handler="lambda-spy", pool="lambda")

    [run] = user.ended(job)

    assert run["state"] == "SUCCEEDED", run
    assert json.loads(run["stdout"])["found"] == []
    assert processes_of(run["executionId"]) == []
