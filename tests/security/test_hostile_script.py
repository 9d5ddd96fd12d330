"""A hostile script next to another tenant's innocent one, on each kind of host.

Each probe of the script is a separate test. A short pass by default; with NEXTFIRE_LONG=1, a minute
on each host. `SEED` determines the random order.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.crons import LONG
from tests.places import open_folder

ROOT = Path(__file__).parents[2]
EXECUTOR = ROOT / "tests" / "security" / "hostile" / "executor.py"
SEED = 1
SECONDS = 60 if LONG else 2
USER = 64_321
"""The user of a worker that is not root. It has no name, and no other test uses it."""
ATTACKS = (
    "abstract_sockets",
    "channel_garbage",
    "files",
    "inherited_descriptors",
    "kcmp",
    "kernel_interfaces",
    "keyrings",
    "limits_and_priorities",
    "links",
    "loopback_servers",
    "mounts",
    "namespaces",
    "own_environment",
    "pidfd_getfd",
    "posix_queues",
    "proc_cmdline",
    "proc_descriptors",
    "proc_environ",
    "proc_folders",
    "proc_memory",
    "process_vm_readv",
    "ptrace",
    "python_variables",
    "raw_calls",
    "setuid_programs",
    "shared_memory",
    "signals",
    "survivors",
    "writes_elsewhere",
    "later_files",
    "later_keyrings",
    "later_posix_queues",
    "later_shared_memory",
)
USERS = ("root", "user") if os.geteuid() == 0 else ("user",)
HOSTS = [
    *USERS,
    # Like a machine that does not allow namespaces.
    *(f"{user} without namespaces" for user in USERS),
]
OPEN = {
    "root without namespaces": {"proc_cmdline"},
    "user without namespaces": {
        "files",
        "later_files",
        "limits_and_priorities",
        "proc_cmdline",
        "writes_elsewhere",
        "no file changed",
        "nothing left",
    },
}
"""Attacks that stay possible by design if scripts share a user or see the host's /proc. The
security page documents them.
"""
pytestmark = pytest.mark.timeout(300 + 4 * SECONDS)
_MQ_UNLINK = {"x86_64": 241, "aarch64": 181}[os.uname().machine]


@dataclass(slots=True)
class Outcome:
    """The result of the attack. `found`: by probe; `end`: last output of the executor, if any."""

    host: str
    tag: str
    returncode: int
    stderr: str
    found: dict[str, set[str]] = field(default_factory=dict)
    end: dict[str, Any] | None = None
    changed: list[str] = field(default_factory=list)
    alive: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


@pytest.fixture(
    scope="module", params=[(host, forks) for host in HOSTS for forks in (False, True)], ids=str
)
def outcome(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    host, forks = request.param
    user, _, without = host.partition(" ")
    with open_folder("test-hostile-") as top:
        yield play(
            top,
            host,
            USER if user == "user" and os.geteuid() == 0 else None,
            namespaces=not without,
            forks=forks,
        )


def play(top: Path, host: str, user: int | None, *, namespaces: bool, forks: bool) -> Outcome:
    """Run the attack in *top*, as *user*, or as the user of the tests. *forks*: whether scripts are
    forked.
    """
    tag, secret = f"hostile-{uuid.uuid4().hex[:12]}", uuid.uuid4().hex
    work, home, outside = top / "work", top / "home", top / "outside"
    for folder, mode in ((work, 0o711), (home, 0o700), (outside, 0o755)):
        folder.mkdir()
        folder.chmod(mode)
    credentials, shared = home / "credentials", outside / "shared"
    credentials.write_text(f"canary-home-{secret}")
    credentials.chmod(0o600)
    shared.write_text("as it was")
    if user is not None:
        for path in (work, home, credentials):
            os.chown(path, user, user)
    watched = [credentials, shared]
    before = [state(path) for path in watched]
    asked = {
        "seed": SEED,
        "seconds": SECONDS,
        "tag": tag,
        "hex": secret,
        "digest": hashlib.sha256(secret.encode()).hexdigest(),
        "namespaces": namespaces,
        "forks": forks,
        "folder": str(work),
        "targets": [str(path) for path in watched],
    }
    end = run_executor(asked, f"canary-executor-{secret}", user)
    found = Outcome(host, tag, end.returncode, end.stderr[-3000:])
    for line in end.stdout.splitlines():
        read(found, line)
    found.alive = settled(lambda: alive(tag))
    found.changed = [
        f"{path.name}: {was} -> {state(path)}"
        for path, was in zip(watched, before, strict=True)
        if state(path) != was
    ]
    found.left = settled(lambda: left(tag, work))
    for name in found.left:
        if Path(name).is_symlink() or Path(name).is_file():
            Path(name).unlink()
    found.left += remove_kernel_objects(tag, USER if user is not None else -1)
    return found


def remove_kernel_objects(tag: str, user: int) -> list[str]:
    """Remove the message queue named *tag*, and the System V shared memory of *user*. Returns the
    objects that existed.
    """
    libc, found = ctypes.CDLL(None), []
    if libc.syscall(_MQ_UNLINK, tag.encode()) == 0:
        found.append("POSIX message queue")
    for line in Path("/proc/sysvipc/shm").read_text().splitlines()[1:]:
        if int(line.split()[7]) == user:
            libc.shmctl(int(line.split()[1]), 0, None)
            found.append("System V shared memory")
    return found


def run_executor(
    asked: dict[str, Any], canary: str, user: int | None
) -> subprocess.CompletedProcess[str]:
    identity: dict[str, Any] = {}
    python = sys.executable
    if user is not None:
        identity = {"user": user, "group": user, "extra_groups": []}
        python = "/usr/bin/python3"
    layers = os.environ.get("TEST_LAYERS", str(ROOT / "layers"))
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join([layers, str(ROOT), *filter(None, sys.path)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_SECRET_ACCESS_KEY": canary,
    }
    return subprocess.run(
        [python, str(EXECUTOR)],
        input=json.dumps(asked),
        env=environment,
        cwd="/",
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=200 + 4 * SECONDS,
        check=False,
        **identity,
    )


def read(outcome: Outcome, line: str) -> None:
    """Process a line printed by the attack or the executor; ignores a broken line."""
    try:
        said = json.loads(line)
    except ValueError:
        return
    if "probe" in said:
        outcome.found.setdefault(said["probe"], set()).update(said.get("found", []))
    elif "victim" in said:
        outcome.end = said


def state(path: Path) -> tuple[str, int, int]:
    try:
        seen = path.stat()
        return path.read_text(), seen.st_mode, seen.st_uid
    except OSError as error:
        return type(error).__name__, 0, 0


def settled(look: Any, within: float = 10) -> list[str]:
    """What *look* still finds after slow cleanup has had time to finish."""
    until = time.monotonic() + within
    while (found := look()) and time.monotonic() < until:
        time.sleep(0.2)
    return list(found)


def alive(tag: str) -> list[str]:
    """Live processes left by the attack."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if tag.encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def left(tag: str, work: Path) -> list[str]:
    """Working folders, and files left by the attack in world-writable places."""
    places = [Path(place) for place in ("/tmp", "/var/tmp", "/dev/shm")]
    found = [str(path) for place in places for path in place.glob(f"*{tag}*")]
    return found + [str(path) for path in work.iterdir()]


def unless_open(outcome: Outcome, what: str, found: Collection[str]) -> None:
    """Skip the test, with the reason, if this is open on the host by design."""
    if found and what in OPEN.get(outcome.host, ()):
        pytest.skip(f"open on this host: {', '.join(sorted(found)[:3])}")


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_finds_nothing(outcome: Outcome, attack: str) -> None:
    assert attack in outcome.found, outcome.stderr
    unless_open(outcome, attack, outcome.found[attack])
    assert outcome.found[attack] == set()


def test_every_attack_is_a_test(outcome: Outcome) -> None:
    assert set(outcome.found) == set(ATTACKS)


def test_the_executor_and_the_victim_are_unharmed(outcome: Outcome) -> None:
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.end is not None, outcome.stderr
    assert outcome.end["victim"] == ["ready\nunharmed\n", ""]
    assert outcome.end["codes"][0] == 0


def test_the_attack_came_to_its_own_end(outcome: Outcome) -> None:
    assert outcome.end is not None, outcome.stderr
    assert outcome.end["codes"][1:] == [0, 0], outcome.end["errors"]


def test_no_process_of_the_attack_survives(outcome: Outcome) -> None:
    assert outcome.alive == []


def test_no_file_outside_its_folder_is_changed(outcome: Outcome) -> None:
    unless_open(outcome, "no file changed", outcome.changed)
    assert outcome.changed == []


def test_no_file_of_the_attack_is_left(outcome: Outcome) -> None:
    unless_open(outcome, "nothing left", outcome.left)
    assert outcome.left == []
