"""The embedded stack: its start, and side by side with other schedulers on one machine: start
latency, a burst, CPU and memory.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import datetime
from pathlib import Path

from benchmarks import side_by_side
from benchmarks.peers import graphile_peer, postgres, procrastinate_peer
from benchmarks.peers.peer import Peer, PeerUnavailableError
from benchmarks.peers.peer import running as running_peer
from benchmarks.report import Result, progress, tell
from benchmarks.side_by_side import BURST, PER_SECOND, SCRIPT, Figures
from nextfire import Client
from nextfire.client.bearer import Bearer
from nextfire_cli.local.embedded import EmbeddedInfo, EmbeddedStack
from tests.places import host_folder

STARTS = 5
MAX_START, MAX_START_P99, MAX_IDLE_PERCENT = 2.0, 0.15, 2.0
MAX_BURST_RATIO, MAX_CPU_RATIO = 1.3, 1.5
PEERS = (procrastinate_peer.PEER, graphile_peer.PEER)
ROOT = Path(__file__).resolve().parents[1]
_BATCH = 100


def measure() -> Result:
    """Run the real stack with one worker of 16 slots, and then each peer, with the same load and
    the same Python for the scripts.
    """
    result = Result()
    with state_folder() as state:
        result.add("start_s", "`nextfire up`", _start(state), most=MAX_START, unit="s")
    own, interpreter = _own_figures()
    result.notes.append(f"All scripts ran with {interpreter}.")
    peers = {}
    for peer in PEERS:
        try:
            peers[peer.name] = _peer_figures(peer, interpreter, result)
        except PeerUnavailableError as error:
            result.notes.append(f"Not compared with {peer.title}: {error}")
    add_own(result, own, [*peers.values()])
    for name, figures in peers.items():
        _add_peer(result, name, figures)
    return result


def add_own(result: Result, own: Figures, peers: Sequence[Figures]) -> None:
    """Add the figures of nextfire, and their ratios to the better peer."""

    def ratio(name: str, *, key: str, what: str, most: float | None = None) -> None:
        if peers:
            best = min(getattr(each, name) for each in peers)
            result.add(
                key, f"{what}, relative to the better peer", getattr(own, name) / best, most=most
            )

    paced = f"{PER_SECOND} runs/s: due → first line of the script"
    result.add("start_p50_s", f"{paced}, p50", own.start_p50_s, unit="s")
    result.add("start_p99_s", "p99", own.start_p99_s, most=MAX_START_P99, unit="s")
    ratio("start_p99_s", key="start_p99_ratio", what="p99")
    burst = f"{BURST:,} runs due in one second: until all are done"
    result.add("burst_s", burst, own.burst_s, unit="s")
    ratio("burst_s", key="burst_ratio", what="the same", most=MAX_BURST_RATIO)
    result.add("cpu_per_run_s", "CPU per run, with its script", own.cpu_per_run_s, unit="s")
    ratio("cpu_per_run_s", key="cpu_ratio", what="the same", most=MAX_CPU_RATIO)
    result.add(
        "idle_cpu_percent",
        "idle: CPU of one core",
        own.idle_cpu_percent,
        most=MAX_IDLE_PERCENT,
        unit="%",
    )
    result.add("idle_mb", "idle: memory (PSS)", own.idle_mb, unit="MB")
    result.add("lost", "runs lost", own.lost, most=0)
    result.add("duplicated", "runs started twice", own.duplicated, most=0)


def _add_peer(result: Result, name: str, figures: Figures) -> None:
    for field in fields(figures):
        key = f"{name}_{field.name}"
        result.add(key, key.replace("_", " "), getattr(figures, field.name))


@contextmanager
def state_folder(prefix: str = "bench-embedded-") -> Iterator[Path]:
    """A folder for the state of a stack, which is removed at the end."""
    state = host_folder(prefix)
    # Scripts of dedicated users must be able to enter it.
    state.chmod(0o711)
    try:
        yield state
    finally:
        shutil.rmtree(state)


@contextmanager
def embedded_stack(prefix: str = "bench-embedded-") -> Iterator[tuple[Path, EmbeddedInfo, Client]]:
    """A folder that scripts may enter, an embedded stack, and its client. The stack's folder is
    below it: scripts cannot read that one.
    """
    with (
        state_folder(prefix) as state,
        EmbeddedStack(state / "stack", sources=ROOT).running(tell) as info,
        Client(info.endpoint, auth=Bearer(info.api_key)) as client,
    ):
        yield state, info, client


def _start(folder: Path) -> float:
    """Median seconds from the start of `nextfire up` until it says that the API answers."""
    program, taken = Path(sys.executable).with_name("nextfire"), []
    # As for a user: only the first start compiles modules.
    variables = {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}
    for _ in progress(range(STARTS), "starts"):
        began = time.monotonic()
        with subprocess.Popen(
            [program, "up"],
            cwd=folder,
            env={**variables, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as up:
            assert up.stdout is not None  # noqa: S101 — a pipe
            up.stdout.readline()
            taken.append(time.monotonic() - began)
            up.terminate()
    return statistics.median(taken)


class _Embedded:
    """The embedded stack as a `Scheduler`."""

    def __init__(self, client: Client, info: EmbeddedInfo) -> None:
        self._client = client
        self.roots = [info.processes[0].pid]

    def create(self, jobs: Mapping[str, datetime], marks: Path) -> None:
        definitions = [
            {
                "jobId": job,
                "type": "ONCE",
                "schedule": at.isoformat(),
                "target": {"handler": "mark"},
                "payload": {"job": job, "marks": str(marks)},
            }
            for job, at in jobs.items()
        ]
        for first in range(0, len(definitions), _BATCH):
            self._client.create_jobs(definitions[first : first + _BATCH])


def _own_figures() -> tuple[Figures, str]:
    with embedded_stack() as (state, info, client):
        client.push_script("mark", SCRIPT.encode())
        return side_by_side.measure("nextfire", _Embedded(client, info), state)


def _peer_figures(peer: Peer, interpreter: str, result: Result) -> Figures:
    with (
        state_folder() as folder,
        postgres.running(folder) as database,
        running_peer(
            peer, folder, database.pid, database.variables, interpreter=interpreter
        ) as scheduler,
    ):
        figures, _ = side_by_side.measure(peer.name, scheduler, folder)
    result.notes.append(
        f"{peer.title}: {peer.settings}; otherwise its defaults, on PostgreSQL {database.version} "
        "with fsync and synchronous_commit."
    )
    return figures
