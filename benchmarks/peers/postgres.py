"""A PostgreSQL server in its own folder, reachable by a Unix socket only."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.peer import PeerUnavailableError

_USERS = ("postgres", "daemon")
"""Users that may run the server: it refuses to run as root."""
_ROLE = "bench"
_DEBIAN = "usr/lib/postgresql/*/bin"
"""Where Debian has its programs, which are not on the PATH."""
_START = 30.0
_STOP = 30.0
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "max_connections": "100",
}


@dataclass(frozen=True, slots=True)
class Postgres:
    """A running server. `variables`: environment variables with which clients find it."""

    pid: int
    version: str
    variables: Mapping[str, str]


@contextmanager
def running(folder: Path) -> Iterator[Postgres]:
    """Context manager: a new server in *folder*, which its user may enter.

    Raises:
        PeerUnavailableError: PostgreSQL is not installed, or does not start.
    """
    programs, user = _programs(), _user()
    home = folder / "postgres"
    home.mkdir(mode=0o700)
    if user is not None:
        os.chown(home, user.pw_uid, user.pw_gid)
    data, name = home / "data", None if user is None else user.pw_name
    log = home / "log"
    with log.open("wb") as output:
        # Only the new files are not synced; the server syncs what it writes.
        initdb: list[str | Path] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            _ROLE,
            "--auth=trust",
            "--no-sync",
        ]
        initdb += ["--encoding=UTF8", "--no-locale"]
        done = subprocess.run(
            initdb, cwd=home, user=name, stdout=output, stderr=output, check=False
        )
        if done.returncode:
            raise PeerUnavailableError(f"initdb failed: {log.read_text()[-500:]}")
        settings = {**_SETTINGS, "unix_socket_directories": str(home)}
        options = [each for name, value in settings.items() for each in ("-c", f"{name}={value}")]
        server = subprocess.Popen(
            [programs / "postgres", "-D", data, *options],
            cwd=home,
            user=name,
            stdout=output,
            stderr=output,
        )
    try:
        _await_ready(server, data, log)
        variables = {"PGHOST": str(home), "PGUSER": _ROLE, "PGDATABASE": "postgres"}
        yield Postgres(server.pid, _version(programs), variables)
    finally:
        server.send_signal(signal.SIGINT)  # ends the connections, writes a checkpoint
        try:
            server.wait(_STOP)
        except subprocess.TimeoutExpired:
            server.send_signal(signal.SIGQUIT)
            server.wait()


def _programs() -> Path:
    """The folder of `initdb` and `postgres`."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else sorted(Path("/").glob(_DEBIAN))
    for place in reversed(places):
        if (place / "postgres").exists():
            return place
    raise PeerUnavailableError(
        "PostgreSQL is not installed. Install it, such as with `apt-get install postgresql`."
    )


def _user() -> pwd.struct_passwd | None:
    """The user of the server; None: the user of this process, unless that is root."""
    if os.geteuid() != 0:
        return None
    users = {each.pw_name: each for each in pwd.getpwall()}
    for name in _USERS:
        if name in users:
            return users[name]
    raise PeerUnavailableError(f"PostgreSQL does not run as root. Add one of the users {_USERS}.")


def _await_ready(server: subprocess.Popen[bytes], data: Path, log: Path) -> None:
    state = data / "postmaster.pid"
    deadline = time.monotonic() + _START
    while server.poll() is None and time.monotonic() < deadline:
        if state.exists() and state.read_text().rstrip().endswith("ready"):
            return
        time.sleep(0.05)
    raise PeerUnavailableError(f"PostgreSQL did not start: {log.read_text()[-500:]}")


def _version(programs: Path) -> str:
    done = subprocess.run(
        [programs / "postgres", "--version"], stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.split()[2]
