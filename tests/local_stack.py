"""The files of a running embedded stack, whose processes are those of the test."""

import os
from pathlib import Path
from typing import Any

from nextfire.client.folder import FOLDER, STACK_FILE, write_private
from nextfire.domain.key_text import secret_of, write_key
from nextfire_cli.local.embedded import EmbeddedInfo, EmbeddedPool
from nextfire_cli.local.processes import ProcessRecord, started

KEY = write_key("local", "b" * 16, secret_of(bytes(32)))


def pretend_stack(root: Path, **changes: Any) -> EmbeddedInfo:
    """Write the files of a stack in *root* that runs as this process. *changes*: of its info."""
    data = root / FOLDER / "embedded"
    data.mkdir(mode=0o700, parents=True)
    (root / FOLDER).chmod(0o700)
    write_private(data / "api-key", KEY)
    info = EmbeddedInfo(
        endpoint="http://127.0.0.1:4711",
        account_id="local",
        key_file=data / "api-key",
        pools={"default": EmbeddedPool(targets="scripts")},
        parts_file=data / "parts.json",
        processes=[
            ProcessRecord(name="embedded", pid=os.getpid(), started=str(started(os.getpid())))
        ],
    ).model_copy(update=changes)
    write_private(root / STACK_FILE, info.model_dump_json())
    return info
