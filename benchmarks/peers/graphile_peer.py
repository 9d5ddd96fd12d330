"""graphile-worker: Node.js, PostgreSQL."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.peer import HERE, POLL_SECONDS, Peer, run

_REQUIREMENTS = ("graphile-worker@0.17.3", "pg@8.23.1")
"""The latest version that runs on Node 20."""


def _install(folder: Path) -> None:
    dependencies = dict(each.split("@") for each in _REQUIREMENTS)
    (folder / "package.json").write_text(json.dumps({"dependencies": dependencies}))
    run(["npm", "install", "--no-audit", "--no-fund", "--no-package-lock"], folder)


def _program(_folder: Path) -> Sequence[str]:
    return ["node", str(HERE / "graphile_app.mjs")]


PEER = Peer(
    name="graphile_worker",
    requirements=_REQUIREMENTS,
    settings=f"pollInterval={POLL_SECONDS * 1000:g} ms, localQueue.size=slots + 1, "
    "completeJobBatchDelay=0, a task that spawns the script",
    install=_install,
    program=_program,
)
