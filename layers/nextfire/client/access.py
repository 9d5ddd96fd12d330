"""Where the API is, and what says who calls: what the caller gives, else the environment, the
local stack of the folder, the user's own files.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx

from nextfire.client.errors import ClientError
from nextfire.domain.key_text import fault_of

ENDPOINT, API_KEY, TOKEN, AUTH = (
    "NEXTFIRE_ENDPOINT",
    "NEXTFIRE_API_KEY",
    "NEXTFIRE_TOKEN",
    "NEXTFIRE_AUTH",
)
STACK_FILE = ".nextfire/stack.json"
LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


class Auth(StrEnum):
    """How requests say who calls: the words of the deployment's setting `auth`."""

    KEYS = "keys"
    IAM = "iam"
    JWT = "jwt"


class Bearer(httpx.Auth):
    """Sends *text*, an API key or a token (*kind* ``key`` or ``token``), with each request."""

    def __init__(self, text: str, kind: str = "key") -> None:
        self._text = text
        self.kind = kind

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._text}"
        yield request


@dataclass(frozen=True, slots=True)
class LocalStack:
    """Where the API of a local stack is, and the file with its key."""

    endpoint: str
    key_file: Path


def from_environment(name: str) -> str | None:
    """The variable *name*; None where it is unset or blank."""
    return os.environ.get(name, "").strip() or None


def above(folder: Path, file: str) -> Path | None:
    """The nearest of *folder* and the folders above it that holds *file*."""
    return next((at for at in (folder, *folder.parents) if (at / file).is_file()), None)


def local_stack() -> LocalStack | None:
    """The local stack of the working folder or one above it. Whether it is up is not asked."""
    root = above(Path.cwd(), STACK_FILE)
    if root is None:
        return None
    try:
        told = json.loads((root / STACK_FILE).read_text(encoding="utf-8"))
        return LocalStack(told["endpoint"], Path(told["key_file"]))
    except (OSError, ValueError, KeyError):
        return None


def is_local(endpoint: str) -> bool:
    """Whether *endpoint* is on this machine."""
    return httpx.URL(endpoint).host in LOOPBACK


def checked_endpoint(endpoint: str | None) -> str:
    """*endpoint*, if it is one.

    Raises:
        ClientError: It is none.
    """
    if not endpoint:
        raise ClientError(
            "There is no endpoint: no local stack is up here.",
            "Start one with `nextfire up`,\n"
            f"or name a deployed API with --endpoint URL or {ENDPOINT}.",
        )
    if not endpoint.startswith(("http://", "https://")):
        raise ClientError(f"{endpoint!r} is no URL.", "An endpoint begins with https://.")
    return endpoint


def named(auth: str | None) -> Auth | None:
    """The way that the word *auth* names.

    Raises:
        ClientError: It names none.
    """
    try:
        return None if auth is None else Auth(auth)
    except ValueError as error:
        raise ClientError(
            f"{auth!r} is no way to say who calls.", f"There are: {', '.join(Auth)}."
        ) from error


def who_calls(
    endpoint: str,
    auth: Auth | None,
    *,
    key: Callable[[], str | None],
    sign: Callable[[], httpx.Auth],
) -> httpx.Auth:
    """What says who calls the API at *endpoint*: as *auth* asks, else a key or a token if there is
    one, else a signature.

    Args:
        endpoint: The API.
        auth: None: what there is decides.
        key: Finds the API key, as `find_key` does.
        sign: Makes the signature.

    Raises:
        ClientError: What *auth* asks for is not there; or it would go unencrypted.
    """
    if auth is Auth.IAM:
        return sign()
    if auth in {None, Auth.KEYS} and (found := key()):
        return _sent_safely(Bearer(found), endpoint)
    if auth in {None, Auth.JWT} and (token := from_environment(TOKEN)):
        return _sent_safely(Bearer(token, "token"), endpoint)
    if auth is Auth.KEYS:
        raise ClientError(
            "There is no API key.",
            f"Put one into {API_KEY}, or into the file {key_file(endpoint)}.\n"
            "`nextfire keys create` makes one.",
        )
    if auth is Auth.JWT:
        raise ClientError("There is no token.", f"Put one into {TOKEN}.")
    return sign()


def find_key(endpoint: str, local_key: Path | None) -> str | None:
    """The API key for *endpoint*: of the environment, else of the local stack, whose file is
    *local_key*, else of the user's own files.

    Raises:
        ClientError: What should be one is none, or others can read it.
    """
    if key := from_environment(API_KEY):
        return checked_key(key, API_KEY)
    if local_key is not None:
        try:
            return local_key.read_text(encoding="ascii").strip()
        except OSError as error:
            raise ClientError(
                f"The key of the local stack cannot be read: {error}.",
                "Stop `nextfire up`, and start it again: it makes another.",
            ) from error
    file = key_file(endpoint)
    try:
        mode = file.stat().st_mode
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ClientError(
                f"Others than you can use the key in {file}.", f"Close it: chmod 600 {file}"
            )
        return checked_key(file.read_text(encoding="ascii").strip(), str(file))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file} cannot be read: {error}.") from error


def key_file(endpoint: str) -> Path:
    """Where the user keeps the API key for *endpoint*: readable to nobody else."""
    home = from_environment("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "nextfire" / "keys" / (httpx.URL(endpoint).host or "none")


def checked_key(key: str, place: str) -> str:
    """*key*, if it is one and is not mistyped. A message never shows it.

    Raises:
        ClientError: It is not one; *place* is where it came from.
    """
    if fault := fault_of(key):
        raise ClientError(
            f"{place} does not hold a valid API key: {fault}.",
            "Copy it again. A key reads nfk_TENANT.ID.SECRET, on one line.",
        )
    return key


def _sent_safely(bearer: Bearer, endpoint: str) -> Bearer:
    if not endpoint.startswith("https://") and not is_local(endpoint):
        raise ClientError(
            f"{endpoint} is not encrypted: everyone on the way could read the key.",
            "Use https://.",
        )
    return bearer
