"""What both local stacks do with their folder: lock it, check it, and read its logs.

Errors:
    LocalStackError             the stack cannot be started; the message says what to do
"""

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import IO

from nextfire.client import ClientError, folder

_FILES = ("lock", "port", "api-key", folder.FILE, "processes.json")
_WRITTEN = (*_FILES, "tmp", "logs", "ministack", "cdk.out", "aws", "embedded")
"""Files and folders of a stack in its folder."""
_EMF = '"_aws":'  # of CloudWatch's embedded metric format
_MOST_OF_A_LINE = 500
Report = Callable[[str], None]


class LocalStackError(ClientError):
    """The local stack cannot be started or used."""


def locked(state: Path) -> IO[bytes]:
    """Create the folder *state* and lock it until the returned file is closed.

    Raises:
        LocalStackError: Another process has locked it, or it cannot be trusted or written.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        check_state(state)
        state.chmod(state.stat().st_mode & ~0o022)
        lock = (state / "lock").open("wb")
    except OSError as error:
        raise unwritable(f"the folder {state}", error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise LocalStackError(
            f"The local stack of {state} runs in another process: use it (nextfire status), or"
            " stop it there with Ctrl-C."
        ) from None
    return lock


def unwritable(what: object, error: OSError) -> LocalStackError:
    """*error*: why *what*, of the folder of a stack, cannot be written."""
    is_full = error.errno in {errno.ENOSPC, errno.EDQUOT}
    remedy = "Free some space." if is_full else "Change into another folder, or repair this one."
    return LocalStackError(
        f"Cannot write {what}, which has the data of the local stack: {error.strerror}. {remedy}"
    )


def check_state(state: Path) -> None:
    """Protect files of other users and targets of links from being written or deleted.

    Raises:
        LocalStackError: The folder belongs to another user, or contains links, or folders in the
            place of files.
    """
    if not state.exists() and not state.is_symlink():
        return
    try:
        folder.check_folder(state)
    except ClientError as error:
        raise LocalStackError(str(error)) from error
    for name in _WRITTEN:
        if (state / name).is_symlink():
            raise LocalStackError(
                f"{state / name} is a symbolic link, which `nextfire` never creates. "
                "Remove it; its target stays unchanged."
            )
    for name in _FILES:
        if (state / name).is_dir():
            raise LocalStackError(
                f"{state / name} is a folder, which `nextfire` creates as a file. Remove it."
            )


def has_stack(state: Path) -> bool:
    """Whether the folder *state* has files of a stack: more than the lock, which `down` leaves."""
    return any((state / name).exists() for name in _WRITTEN if name != "lock")


def tail(log: Path, lines: int = 10) -> str:
    """Return the last lines of *log*, shortened, without metrics."""
    try:
        found = [each for each in log.read_text(errors="replace").splitlines() if _EMF not in each]
    except OSError:
        return ""
    return "\n".join(line[:_MOST_OF_A_LINE] for line in found[-lines:])
