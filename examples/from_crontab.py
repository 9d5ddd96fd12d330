"""Writes a crontab as the file of a pipeline: a job for each line, which runs its command by the
script `command.py`. Lines that have no equivalent are reported on stderr and left out.

    crontab -l | python3 examples/from_crontab.py > crontab.json

/etc/crontab has a column more, the user: remove it before.
"""

import json
import re
import sys
from collections.abc import Iterable
from typing import Any

_VARIABLE = re.compile(r"""(\w+)\s*=\s*(["']?)(.*)\2""")
_LINE = re.compile(r"(@\w+|(?:\S+\s+){4}\S+)\s+(.+)")
_ZONES = {"CRON_TZ", "TZ"}
_OF_CRON = {"MAILTO", "MAILFROM", "SHELL", "HOME", "LOGNAME", "USER", "CONTENT_TYPE"}
"""Variables that cron reads itself, or that the executor sets."""


def pipeline(lines: Iterable[str]) -> dict[str, Any]:
    """The document of the pipeline. Schedules are copied: `nextfire apply` checks them."""
    zone, env, ids, jobs = "UTC", dict[str, str](), set[str](), list[dict[str, Any]]()
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        if found := _VARIABLE.fullmatch(line):
            name, _, value = found.groups()
            if name in _ZONES:
                zone = value
            elif name in _OF_CRON:
                print(f"line {number}: {name} is left out", file=sys.stderr)
            else:
                env = {**env, name: value}
            continue
        found = _LINE.fullmatch(line)
        if found is None or found[1] == "@reboot" or found[2].startswith("%"):
            print(f"line {number} is left out: {line}", file=sys.stderr)
            continue
        # An unescaped % ends the command; the rest is its input, with line feeds for each %.
        command, *rest = (each.replace(r"\%", "%") for each in re.split(r"(?<!\\)%", found[2]))
        payload = {"command": command.strip()} | ({"input": "\n".join(rest)} if rest else {})
        target = {"handler": "command"} | ({"env": env} if env else {})
        jobs.append(
            {
                "jobId": _id(command, ids),
                "type": "CRON",
                "schedule": found[1],
                "timezone": zone,
                "misfire": {"policy": "SKIP"},
                "retryPolicy": {"maxAttempts": 1},
                "target": target,
                "payload": payload,
            }
        )
    return {"pipeline": "crontab", "jobs": jobs}


def _id(command: str, ids: set[str]) -> str:
    """The name of the program, with a number if it is among *ids*, to which it is added."""
    program = command.split(maxsplit=1)[0].rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9]+", "-", program).strip("-")[:50] or "job"
    found, number = name, 1
    while found in ids:
        number += 1
        found = f"{name}-{number}"
    ids.add(found)
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("It reads standard input: crontab -l | python3 from_crontab.py > crontab.json")
    print(json.dumps(pipeline(sys.stdin), indent=2))
