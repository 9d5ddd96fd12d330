"""Where the API is, and what says who calls: what the caller gives, else the environment, the
local stack of the folder, the user's own files. An endpoint that a folder selects gets the local
stack's own key or credentials, never the caller's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import httpx

from nextfire.client.errors import ClientError
from nextfire.client.folder import FILE, FOLDER, LOOPBACK, read_private, read_stack
from nextfire.domain.key_text import fault_of

ENDPOINT, API_KEY, TOKEN, AUTH = (
    "NEXTFIRE_ENDPOINT",
    "NEXTFIRE_API_KEY",
    "NEXTFIRE_TOKEN",
    "NEXTFIRE_AUTH",
)
STACK_FILE = f"{FOLDER}/{FILE}"


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
    """Where the API of a local stack is, the file with its key, and its own AWS credentials."""

    endpoint: str
    key_file: Path
    region: str
    access_key: str
    secret_key: str


def from_environment(name: str) -> str | None:
    """The variable *name*; None where it is unset or blank."""
    return os.environ.get(name, "").strip() or None


def above(folder: Path, file: str) -> Path | None:
    """The nearest of *folder* and the folders above it that holds *file*."""
    return next((at for at in (folder, *folder.parents) if (at / file).is_file()), None)


def local_stack() -> LocalStack | None:
    """The local stack of the working folder or one above it. Whether it is up is not asked.

    Raises:
        ClientError: Its files cannot be trusted.
    """
    root = above(Path.cwd(), STACK_FILE)
    if root is None:
        return None
    try:
        found = read_stack(root / FOLDER)
    except FileNotFoundError:
        return None
    return LocalStack(
        found["endpoint"],
        Path(found["key_file"]),
        found["region"],
        found["access_key"],
        found["secret_key"],
    )


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
            "No endpoint: no local stack is running here.",
            "Start one with `nextfire up`,\n"
            f"or name a deployed API with --endpoint URL or {ENDPOINT}.",
        )
    if not endpoint.startswith(("http://", "https://")):
        raise ClientError(f"{endpoint!r} is not a URL.", "An endpoint begins with https://.")
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
            f"{auth!r} is not a way to authenticate.", f"Available: {', '.join(Auth)}."
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
            "No API key found.",
            f"Put one into {API_KEY}, or into the file {key_file(endpoint)}.\n"
            "`nextfire keys create` makes one.",
        )
    if auth is Auth.JWT:
        raise ClientError("No token found.", f"Put one into {TOKEN}.")
    return sign()


def of_folder(auth: Auth | None, key: Path, sign: Callable[[], httpx.Auth]) -> httpx.Auth:
    """What says who calls the local stack that a folder selected: the stack's own key in the file
    *key*, or for IAM the signature that *sign* makes with the stack's credentials.

    Raises:
        ClientError: *auth* asks for a token, or the key cannot be used.
    """
    if auth is Auth.IAM:
        return sign()
    if auth is Auth.JWT:
        raise ClientError(
            "No token is sent to the local stack of a folder: it has its own API key.",
            f"Leave out --auth and {AUTH}, or name the API with --endpoint URL or {ENDPOINT}.",
        )
    return Bearer(stack_key(key))


def ignored_by_folder(auth: Auth | None, key: Path) -> list[str]:
    """The variables that are set but not sent, because a folder selected the endpoint: its local
    stack, whose own key is in the file *key*, is called as `of_folder` does.

    Raises:
        ClientError: The key cannot be used.
    """
    found: list[str] = []
    given = from_environment(API_KEY) if auth in {None, Auth.KEYS} else None
    if given and given != stack_key(key):
        found.append(API_KEY)
    if auth is None and from_environment(TOKEN):
        found.append(TOKEN)
    return found


def stack_key(file: Path) -> str:
    """The API key of a local stack, from its *file*.

    Raises:
        ClientError: The file is not the caller's own, or does not contain a key.
    """
    return checked_key(read_private(file).strip(), str(file))


def find_key(endpoint: str, local_key: Path | None) -> str | None:
    """The API key for *endpoint*, which the caller named: of the environment, else of the local
    stack at this endpoint, whose file is *local_key*, else of the user's own files.

    Raises:
        ClientError: What should be one is none, or others can read it.
    """
    if key := from_environment(API_KEY):
        return checked_key(key, API_KEY)
    if local_key is not None:
        return stack_key(local_key)
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
