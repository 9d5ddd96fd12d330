"""What a start of the emulated stack says: what it is for, and what an earlier start left."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from nextfire_cli.local.emulator import NAME as EMULATOR
from nextfire_cli.local.processes import ProcessRecord

PURPOSE = (
    "this stack is for trying the AWS app: the emulator saves its data when it is stopped, and"
    " loses changes if it is killed. `nextfire up` without --emulator loses nothing"
)


def left_behind(data: Path, records: Sequence[ProcessRecord]) -> str:
    """What an earlier start left that was not stopped, and what is lost. *data*: the folder of the
    emulator's data; *records*: the processes of that start.
    """
    if any(record.name == EMULATOR and record.alive for record in records):
        return "stopping the emulator of an earlier start, which saves its data: nothing is lost"
    saved = [each.stat().st_mtime for each in data.rglob("*") if each.is_file()]
    if not saved:
        return "the emulator was killed before it saved anything: its jobs and runs are lost"
    at = datetime.fromtimestamp(max(saved), UTC)
    return (
        f"the emulator was killed: found the data of its last clean stop, {at:%Y-%m-%d %H:%M} UTC;"
        " jobs and runs since then are lost"
    )


def how_to_call(auth: str, endpoint: str) -> str | None:
    """How to call the API at *endpoint*, if the setting `auth` is not keys; otherwise None."""
    if auth == "iam":
        return (
            "the API takes signed requests, no key: in this folder, nextfire signs with the"
            " emulator's credentials"
        )
    if auth == "jwt":
        return (
            "the API takes tokens of its issuer, no key: set NEXTFIRE_TOKEN and"
            f" NEXTFIRE_ENDPOINT={endpoint}"
        )
    return None
