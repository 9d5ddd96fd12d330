"""Contexts: APIs that the user logged in to, each with its endpoint and credentials, in one file
that only the user can read.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, field, replace
from pathlib import Path
from typing import Any

from nextfire.client.auth import Auth
from nextfire.client.errors import ClientError, MissingError
from nextfire.dataclass import dataclass

CONTEXT = "NEXTFIRE_CONTEXT"
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class Context:
    """An API and the credentials for it. `auth`: None to use the first available; `profile` and
    `region`: for signatures.
    """

    endpoint: str
    key: str | None = field(default=None, repr=False)
    auth: Auth | None = None
    profile: str | None = None
    region: str | None = None


@dataclass(frozen=True, slots=True)
class Contexts:
    """The contexts by name, and the name of the current one."""

    by_name: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def find(self, name: str) -> Context:
        """Return the context *name*.

        Raises:
            MissingError: It does not exist.
        """
        if name not in self.by_name:
            known = ", ".join(self.by_name) or "none"
            raise MissingError(
                f"Context {name!r} was not found. Known: {known}.",
                "Create it: nextfire login URL --name NAME",
            )
        return self.by_name[name]

    def selected(self) -> Context | None:
        """The current context, or None."""
        return self.by_name.get(self.current) if self.current else None

    def using(self, name: str) -> Contexts:
        """The same contexts with *name* as the current one.

        Raises:
            MissingError: It does not exist.
        """
        self.find(name)
        return replace(self, current=name)

    def having(self, name: str, context: Context) -> Contexts:
        """The contexts with *context* as *name*, which becomes the current one."""
        return Contexts({**self.by_name, name: context}, name)

    def without(self, name: str) -> Contexts:
        """The contexts without *name*.

        Raises:
            MissingError: It does not exist.
        """
        self.find(name)
        rest = {each: found for each, found in self.by_name.items() if each != name}
        return Contexts(rest, None if self.current == name else self.current)


def read_contexts(file: Path) -> Contexts:
    """Return the contexts in *file*; none if it does not exist.

    Raises:
        ClientError: The file is open to other users, or does not contain contexts.
    """
    try:
        if os.name == "posix" and file.stat().st_mode & _OTHERS:
            raise ClientError(
                f"Others than you can use the keys in {file}.", f"Close it: chmod 600 {file}"
            )
        document = json.loads(file.read_text(encoding="utf-8"))
        contexts = {str(name): _read(each) for name, each in document["contexts"].items()}
        return Contexts(contexts, _text(document, "current"))
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ClientError(f"{file} cannot be read: {error}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ClientError(
            f"{file} does not contain contexts.",
            "Remove it and log in again: nextfire login URL",
        ) from error


def change_contexts(file: Path, change: Callable[[Contexts], Contexts]) -> Contexts:
    """Replace the contexts in *file* by what *change* makes of them, and return the result. Of
    several processes each sees what the ones before it wrote.

    Raises:
        ClientError: The file cannot be used or written.
    """
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(file.parent):
            contexts = change(read_contexts(file))
            _write(file, contexts)
    except OSError as error:
        raise ClientError(f"{file} cannot be written: {error.strerror}.") from error
    return contexts


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Exclude other processes that change *folder*. A system without such locks does not."""
    try:
        import fcntl  # noqa: PLC0415 — not on Windows
    except ImportError:
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _write(file: Path, contexts: Contexts) -> None:
    document = {
        "current": contexts.current,
        "contexts": {name: _document(each) for name, each in contexts.by_name.items()},
    }
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as opened:
            json.dump(document, opened, indent=2)
        fresh.replace(file)
    except BaseException:
        fresh.unlink(missing_ok=True)  # it has keys
        raise


def _document(context: Context) -> dict[str, Any]:
    return {name: value for name, value in asdict(context).items() if value is not None}


def _read(document: dict[str, Any]) -> Context:
    auth = document.get("auth")
    known = {name: _text(document, name) for name in ("key", "profile", "region")}
    return Context(str(document["endpoint"]), auth=Auth(auth) if auth else None, **known)


def _text(document: dict[str, Any], name: str) -> str | None:
    """The text *name* of *document*; None if it is absent. Raises TypeError for another value."""
    found = document.get(name)
    if found is not None and not isinstance(found, str):
        raise TypeError(f"{name} is not a text")
    return found
