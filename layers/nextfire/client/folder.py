"""The folder `.nextfire` of a local stack. A cloned repository can contain one, so what it says is
used only if it belongs to the caller, is closed to others, and names this machine.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nextfire.client.errors import ClientError

FOLDER = ".nextfire"
FILE = "stack.json"
STACK_FILE = f"{FOLDER}/{FILE}"
EMBEDDED = "embedded"
"""The `kind` of an embedded stack. The emulator's has none."""
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_LOCAL = re.compile(
    r"https?://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?(/[\w$.,/-]*)?", re.ASCII
)
"""Only these spellings: libraries read others (user info, `\\`, decimal hosts) differently."""
_AGAIN = (
    "Stop `nextfire up` and start it again: it writes these files for you alone (mode 600).\n"
    "If you started no stack here, remove {folder}: it came with the files next to it.\n"
    "To call another API, name it with endpoint=URL or NEXTFIRE_ENDPOINT."
)


def here() -> Path:
    """The working folder.

    Raises:
        ClientError: It was deleted, or the caller may not read its path.
    """
    try:
        return Path.cwd()
    except OSError as error:
        was = "was deleted" if isinstance(error, FileNotFoundError) else "cannot be read"
        raise ClientError(
            f"The working folder {was}.", "Change into a folder that exists: cd ~"
        ) from error


def above(folder: Path, file: str) -> Path | None:
    """Return the nearest of *folder* and its parents that contains *file*. Folders that the caller
    may not enter do not.
    """
    at_or_above = (folder, *folder.parents)
    return next((at for at in at_or_above if os.path.isfile(at / file)), None)  # noqa: PTH113


def read_stack(folder: Path) -> dict[str, Any]:
    """The description of the local stack in *folder*, a `.nextfire`: its addresses are on the
    loopback, and its `key_file` is a private file in *folder*.

    Raises:
        FileNotFoundError: No stack runs there.
        ClientError: The folder or the file cannot be trusted or read.
    """
    file = folder / FILE
    if not file.exists() and not file.is_symlink():
        raise FileNotFoundError(file)
    check_folder(folder)
    if folder.stat().st_mode & _OTHERS_WRITE:
        raise _untrusted(folder, f"{folder} can be written by other users.")
    try:
        stack = json.loads(read_private(file))
    except (ValueError, RecursionError) as error:
        raise _untrusted(folder, f"{file} does not describe a local stack.") from error
    if not isinstance(stack, dict):
        raise _untrusted(folder, f"{file} does not describe a local stack.")
    _check(stack, folder)
    return stack


def read_private(file: Path) -> str:
    """The text of *file*, a regular file that belongs to the caller, with mode 600.

    Raises:
        ClientError: It is something else, or cannot be read.
    """
    try:
        # Without waiting for the other end of a pipe.
        handle = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, encoding="utf-8") as opened:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_nlink != 1:
                raise _untrusted(file.parent, f"{file} is not a regular file with one name.")
            if found.st_uid != os.getuid():
                raise _untrusted(file.parent, f"{file} belongs to another user.")
            if found.st_mode & _OTHERS:
                raise _untrusted(
                    file.parent,
                    f"{file} is open to other users: its mode is {found.st_mode & 0o777:o}.",
                )
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        raise _untrusted(file.parent, f"{file} cannot be read: {error}.") from error


def check_folder(folder: Path) -> None:
    """Raises:
    ClientError: *folder* is not a directory of the caller's, or is a symbolic link.
    """
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise _untrusted(folder, f"{folder} is a symbolic link or a file, not a folder.")
    if found.st_uid != os.getuid():
        raise _untrusted(folder, f"{folder} belongs to another user.")


def write_private(file: Path, text: str) -> None:
    """Write *text* to *file* with mode 600, in place of whatever has that name.

    Raises:
        OSError: It cannot be written. Names a file, also if the disk is full.
    """
    fresh = file.with_name(f"{file.name}.new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fresh.unlink(missing_ok=True)
        with os.fdopen(os.open(fresh, flags, 0o600), "w", encoding="utf-8") as opened:
            opened.write(text)
        fresh.replace(file)
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def on_loopback(address: object) -> bool:
    """Whether *address* is an http(s) URL of this machine, in a spelling that has one meaning."""
    if not isinstance(address, str) or not _LOCAL.fullmatch(address):
        return False
    import httpx2  # noqa: PLC0415 — takes a while, and `nextfire up` does not need it early

    try:
        url = httpx2.URL(address)
    except httpx2.InvalidURL:
        return False
    return url.host in LOOPBACK and not url.userinfo and (url.port or 80) < 2**16


def _check(stack: dict[str, Any], folder: Path) -> None:
    embedded = stack.get("kind") == EMBEDDED
    addresses = ("endpoint",) if embedded else ("endpoint", "aws_endpoint")
    needed = {name: stack.get(name) for name in addresses}
    queues = {
        f"pools.{pool}.{name}": urls.get(name) if isinstance(urls, dict) else None
        for pool, urls in _items({} if embedded else stack.get("pools"))
        for name in ("queue_url", "dlq_url")
    }
    for name, address in (needed | queues).items():
        if not on_loopback(address):
            raise _untrusted(
                folder,
                f"{folder / FILE}: {name}: not on this machine (got {address!r}).",
                "A local stack is at http://127.0.0.1:PORT.\n",
            )
    names = () if embedded else ("region", "access_key", "secret_key")
    for name in (*names, "key_file"):
        if not isinstance(stack.get(name), str) or not stack[name]:
            raise _untrusted(folder, f"{folder / FILE} has no {name}.")
    # Without links, those of parents too: `/tmp` is one on some machines.
    key = Path(stack["key_file"])
    if key.is_symlink() or not _is_within(key, folder):
        raise _untrusted(folder, f"{folder / FILE}: key_file: {key} is not a file in {folder}.")


def _is_within(file: Path, folder: Path) -> bool:
    try:
        return file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links; a NUL in the name
        return False


def _items(value: object) -> Iterator[tuple[str, object]]:
    yield from value.items() if isinstance(value, dict) else ()


def _untrusted(folder: Path, problem: str, allowed: str = "") -> ClientError:
    return ClientError(
        f"The local stack is not used. {problem}", allowed + _AGAIN.format(folder=folder)
    )
