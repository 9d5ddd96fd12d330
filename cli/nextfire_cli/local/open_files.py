"""The limit of open files of the processes of an embedded stack."""

import re
from collections.abc import Iterator
from pathlib import Path

MIN_OPEN_FILES = 1_300
"""With fewer, runs that overlap, or a script that sends its descriptors, leave none for others."""
_LIMIT = re.compile(r"^Max open files +\S+ +([0-9]+)", re.MULTILINE)


def few_open_files(pid: int | str = "self") -> Iterator[str]:
    """A problem and its remedy if process *pid* may open too few files; nothing if unknown."""
    try:
        found = _LIMIT.search(Path(f"/proc/{pid}/limits").read_text())
    except OSError:
        return
    if found and int(found[1]) < MIN_OPEN_FILES:
        yield (
            f"the stack may open {int(found[1]):,} files at a time: runs can be DEFERRED for lack "
            "of them. Raise its hard limit and start it again: LimitNOFILE=65536 in the unit of "
            "systemd, or ulimit -Hn 65536 as root before `nextfire up`"
        )
