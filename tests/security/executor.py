"""An executor in a separate process, the target of the attacks in this folder.

    python executor.py FOLDER < calls.json > report.json

`calls`: lists of scripts. The scripts of one list run concurrently, the lists run one after the
other. Each script is an object {source, tenant, timeout, environment}. The report holds the result
of each script, and every process start that an audit hook saw.
"""

from __future__ import annotations

import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import repeat
from pathlib import Path
from typing import Any

from nextfire.adapters.scripts import sandboxes
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import ScriptCall
from tests.supervisors import Watch

started: list[dict[str, Any]] = []


def observe(event: str, arguments: tuple[Any, ...]) -> None:
    """Record process starts."""
    if event == "subprocess.Popen":
        program, _, _, environment = arguments
        started.append({"program": str(program), "environment": environment and {**environment}})
    elif event in {"os.system", "os.posix_spawn", "os.exec", "os.spawn", "os.fork", "os.forkpty"}:
        started.append({"program": event, "environment": None})


def main() -> None:
    """Run the calls read from standard input."""
    folder = Path(sys.argv[1])
    if os.environ.get("TEST_NAMESPACES") == "no":
        sandboxes.probe_host = lambda environment: HostFeatures(namespaces=False)  # type: ignore[attr-defined]  # noqa: ARG005
    sys.addaudithook(observe)
    runner = ProcessScriptRunner(temp_root=folder, grace=timedelta(seconds=1))

    def run(call: dict[str, Any], watch: Watch, first: Watch) -> dict[str, Any]:
        while call.get("after") and not first.printed["stdout"]:
            time.sleep(0.01)
        end = runner.run(
            ScriptCall(
                call.get("name", "script.py"),
                call["source"].encode(),
                "{}",
                timedelta(seconds=call.get("timeout", 20)),
                call.get("tenant", "acme"),
                call.get("environment", {}),
            ),
            watch,
        )
        return {
            "exit_code": end.exit_code,
            "error": end.error,
            "unavailable": end.unavailable,
            "stderr": end.stderr,
            "printed": bytes(watch.printed["stdout"]).decode(errors="replace"),
        }

    ends = []
    for together in json.load(sys.stdin):
        with ThreadPoolExecutor(len(together)) as threads:
            watches = [Watch() for _ in together]
            ends.append(list(threads.map(run, together, watches, repeat(watches[0]))))
    json.dump({"ends": ends, "started": started}, sys.stdout)


if __name__ == "__main__":
    main()
