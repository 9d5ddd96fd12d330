"""Runs an innocent script and a hostile one concurrently, as an executor in a separate process.

It reads from standard input what `common` describes, and `hex`, the secret part of canaries. It
forwards the output of the hostile script line by line, so the output is known even if the executor
is killed; the last line reports how everything ended.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
import zipfile
from base64 import b64encode
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from nextfire.adapters.scripts import launchers, sandboxes
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.job_role import StsJobRole
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ids import JobKey
from nextfire.domain.log import Stream
from nextfire.domain.masking import Masker
from nextfire.domain.ports.clocks import Clock
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit
from tests.supervisors import Watch

HERE = Path(__file__).parent
LONG = timedelta(minutes=10)
UNPACKED = """
import base64, io, os, sys, zipfile
path = os.environ["TMPDIR"] + "/attack"
zipfile.ZipFile(io.BytesIO(base64.b64decode({}))).extractall(path)
sys.path.insert(0, path)
from tests.security.hostile.attack import main
main()
"""
"""The archive as a single file: archives are not forked."""
job = json.loads(sys.stdin.read())


class Passing(Watch):
    """Forwards the output of a script."""

    def output(self, stream: Stream, data: bytes) -> None:
        super().output(stream, data)
        if stream == "stdout":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


def hostile_archive() -> bytes:
    """The attack as an archive."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        start = "from tests.security.hostile.attack import main\nmain()\n"
        archive.writestr("__main__.py", start)
        for path in HERE.glob("*.py"):
            if path.name not in {"executor.py", "victim.py"}:
                archive.writestr(f"tests/security/hostile/{path.name}", path.read_bytes())
    return data.getvalue()


class Sts:
    """Returns credentials that are a canary."""

    def assume_role(self, **_: object) -> dict[str, object]:
        expires_at = datetime.now(UTC) + timedelta(hours=1)
        secret = f"canary-credentials-{job['hex']}"
        return {"Credentials": {"AccessKeyId": "a", "SecretAccessKey": secret,
                                "SessionToken": "b", "Expiration": expires_at}}  # fmt: skip


def own_network() -> str:
    """The network namespace of this process."""
    return os.readlink("/proc/self/ns/net")


def own_servers() -> list[int]:
    """The ports of this process. The machine's other ports belong to tests that run at the same
    time.
    """
    own = set()
    for path in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            own.add(os.readlink(path))
    sockets = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [int(each[1].split(":")[1], 16) for each in sockets if f"socket:[{each[9]}]" in own]


def attack(runner: ProcessScriptRunner, **more: Any) -> ScriptExit:
    where = {"executor": os.getpid(), "network": own_network(), "servers": own_servers()}
    payload = json.dumps({**job, "hex": None, **where, **more})
    name, source = "attack.zip", hostile_archive()
    if job["forks"]:
        name, source = "attack.py", UNPACKED.format(b64encode(source)).encode()
    return runner.run(ScriptCall(name, source, payload, LONG, "evil"), Passing())


def main() -> None:
    """Run both scripts, then a hostile script again, which looks for leftovers."""
    launchers.OFTEN = 1 if job["forks"] else sys.maxsize
    if not job["namespaces"]:
        sandboxes.probe_host = lambda environment: HostFeatures(namespaces=False)  # type: ignore[attr-defined]  # noqa: ARG005
    runner = ProcessScriptRunner(temp_root=Path(job["folder"]), grace=timedelta(seconds=5))
    clock = cast(Clock, SimpleNamespace(now=lambda: datetime.now(UTC)))
    sts = cast(Any, Sts())
    role = StsJobRole(sts, role_arn="arn:x", pool="default", environment={}, clock=clock)
    over, victim = threading.Event(), Watch()
    victim.ask = lambda: Directive.CANCEL if over.is_set() else Directive.CONTINUE
    ends: list[ScriptExit] = []

    def run_victim() -> None:
        with role.lent(JobKey("acme", "report"), Masker()) as environment:
            payload = json.dumps({"hex": job["hex"], "tag": job["tag"], "own": "own-" + job["hex"]})
            source = (HERE / "victim.py").read_bytes()
            secret = {"SECRET": f"canary-environment-{job['hex']}", **environment}
            call = ScriptCall("victim.py", source, payload, LONG, "acme", secret)
            ends.append(runner.run(call, victim))

    innocent = threading.Thread(target=run_victim)
    innocent.start()
    while not victim.printed["stdout"] and innocent.is_alive():
        innocent.join(0.05)
    first = attack(runner)
    over.set()
    innocent.join()
    later = attack(
        runner,
        seconds=0,
        prefix="later_",
        only=["keyrings", "shared_memory", "posix_queues", "files"],
    )
    role.close()
    printed = [bytes(victim.printed[name]).decode() for name in ("stdout", "stderr")]
    codes = [ends[0].exit_code, first.exit_code, later.exit_code]
    errors = [end.error or end.stderr[-2000:] for end in (ends[0], first, later)]
    print("\n" + json.dumps({"victim": printed, "codes": codes, "errors": errors}), flush=True)


if __name__ == "__main__":
    main()
