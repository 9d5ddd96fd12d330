"""Finds the endpoint and the credentials for it: from arguments, else from the environment, the
local stack of the folder, the current context, or the user's files. An endpoint that a folder
selects gets the local stack's own key or credentials, never the caller's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from nextfire.client.auth import Auth
from nextfire.client.contexts import CONTEXT, Context, read_contexts
from nextfire.client.errors import ClientError
from nextfire.client.folder import (
    FOLDER,
    LOOPBACK,
    STACK_FILE,
    above,
    here,
    read_private,
    read_stack,
)
from nextfire.dataclass import dataclass
from nextfire.domain.key_text import fault_of

if TYPE_CHECKING:
    import httpx2

    from nextfire.client.bearer import Bearer

ENDPOINT, API_KEY, TOKEN, AUTH = (
    "NEXTFIRE_ENDPOINT",
    "NEXTFIRE_API_KEY",
    "NEXTFIRE_TOKEN",
    "NEXTFIRE_AUTH",
)


class NoHomeError(ClientError):
    """The user has no account and no HOME, as in a container that runs as any user id."""


@dataclass(frozen=True, slots=True)
class LocalEndpoint:
    """The endpoint of a local stack, the file with its API key, and its own AWS credentials, which
    are empty for an embedded stack.
    """

    endpoint: str
    key_file: Path
    region: str
    access_key: str
    secret_key: str


_BEGINS = "An endpoint begins with https://."


def from_environment(name: str) -> str | None:
    """Return the variable *name*; None if it is unset or blank."""
    return os.environ.get(name, "").strip() or None


def local_stack() -> LocalEndpoint | None:
    """Return the local stack of the working folder or of a parent. It may not be running.

    Raises:
        ClientError: Its files cannot be trusted.
    """
    root = above(here(), STACK_FILE)
    if root is None:
        return None
    try:
        found = read_stack(root / FOLDER)
    except FileNotFoundError:
        return None
    return LocalEndpoint(
        found["endpoint"],
        Path(found["key_file"]),
        *(str(found.get(name, "")) for name in ("region", "access_key", "secret_key")),
    )


def named_context(name: str | None) -> Context | None:
    """Return the context *name*, else that of the variable `NEXTFIRE_CONTEXT`, or None.

    Raises:
        ClientError: It does not exist, or the contexts cannot be used.
    """
    name = name or from_environment(CONTEXT)
    return read_contexts(contexts_file()).find(name) if name else None


def current_context() -> Context | None:
    """Return the context that `nextfire login` or `nextfire context use` selected, or None. It
    applies in folders without a local stack.

    Raises:
        ClientError: The contexts cannot be used.
    """
    try:
        file = contexts_file()
    except NoHomeError:
        return None
    return read_contexts(file).selected()


def is_local(endpoint: str) -> bool:
    """Whether *endpoint* is on this machine.

    Raises:
        ClientError: *endpoint* is not a URL.
    """
    return _host(endpoint) in LOOPBACK


def _host(endpoint: str) -> str:
    import httpx2  # noqa: PLC0415 — takes a while, and the command must start quickly

    try:
        return httpx2.URL(endpoint).host
    except httpx2.InvalidURL as error:
        raise ClientError(f"{endpoint!r} is not a URL: {error}.", _BEGINS) from error


def checked_endpoint(endpoint: str | None) -> str:
    """Return *endpoint*, without ``/v1``, if it is a URL.

    Raises:
        ClientError: *endpoint* is absent or not a URL.
    """
    if not endpoint:
        raise ClientError(
            "No endpoint: no local stack is running here.",
            "Start one with `nextfire up`,\n"
            f"or name a deployed API with endpoint=URL or {ENDPOINT}.",
        )
    endpoint = endpoint.strip()
    if not endpoint.startswith(("http://", "https://")) or not _host(endpoint):
        raise ClientError(f"{endpoint!r} is not a URL.", _BEGINS)
    return endpoint.rstrip("/").removesuffix("/v1")


def named(auth: str | None) -> Auth | None:
    """Return the member of `Auth` with the value *auth*.

    Raises:
        ClientError: *auth* is not a value of `Auth`.
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
    sign: Callable[[], httpx2.Auth],
) -> httpx2.Auth:
    """Return the authentication for the API at *endpoint*: the kind that *auth* names, else an API
    key or a token if one is found, else a signature.

    Args:
        endpoint: The API.
        auth: The kind of authentication; None to use the first that is available.
        key: Finds the API key, like `find_key`.
        sign: Creates the signature.

    Raises:
        ClientError: Credentials for *auth* are missing, or they would be sent unencrypted.
    """
    from nextfire.client.bearer import Bearer  # noqa: PLC0415 — as in `_host`

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


def without_credentials(endpoint: str, error: ClientError) -> ClientError:
    """Return the error of a call that has no API key and that, because of *error*, cannot be
    signed.
    """
    return ClientError(
        f"No API key found, and no AWS credentials instead: {error.problem}",
        f"Put a key into {API_KEY}, or into the file {key_file(endpoint)}.\n"
        f"If the API wants signed requests: {error.remedy}",
    )


def of_folder(auth: Auth | None, key: Path, sign: Callable[[], httpx2.Auth]) -> httpx2.Auth:
    """Return the authentication for a local stack that a folder selected: the stack's own key in
    the file *key*, or for IAM the signature that *sign* creates with the stack's credentials.

    Raises:
        ClientError: *auth* asks for a token, or the key cannot be used.
    """
    if auth is Auth.IAM:
        return sign()
    if auth is Auth.JWT:
        raise ClientError(
            "No token is sent to the local stack of a folder.",
            f"Name the API with endpoint=URL or {ENDPOINT}. Or, if it takes API keys, leave out"
            f' auth="jwt" and {AUTH}.',
        )
    from nextfire.client.bearer import Bearer  # noqa: PLC0415 — as in `_host`

    return Bearer(stack_key(key))


def ignored_by_folder(auth: Auth | None, key: Path) -> list[str]:
    """Return the variables that are set but not sent, because a folder selected the endpoint. The
    local stack is called with its own key, in the file *key*; see `of_folder`.

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
    """Return the API key of a local stack from its *file*.

    Raises:
        ClientError: The file is not the caller's own, or does not contain a key.
    """
    return checked_key(read_private(file).strip(), str(file))


def find_key(endpoint: str, local_key: Path | None, own: str | None) -> str | None:
    """Return the API key for an *endpoint* that the caller named: from the environment, else *own*,
    the key of its context, else from *local_key*, the key file of a local stack at this endpoint,
    else from the user's files.

    Raises:
        ClientError: The key is malformed, or other users can read its file.
    """
    if key := from_environment(API_KEY):
        return checked_key(key, API_KEY)
    if own is not None:
        return checked_key(own, str(contexts_file()))
    if local_key is not None:
        return stack_key(local_key)
    try:
        file = key_file(endpoint)
    except NoHomeError:
        return None
    try:
        mode = file.stat().st_mode
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ClientError(
                f"Others than you can use the key in {file}.", f"Close it: chmod 600 {file}"
            )
        return checked_key(file.read_text(encoding="ascii").strip(), str(file))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(f"{file} cannot be read: {error}.") from error


def key_file(endpoint: str) -> Path:
    """Return the file of the user's API key for *endpoint*. Only the user may read it.

    Raises:
        NoHomeError: The user has no home folder.
        ClientError: *endpoint* is not a URL.
    """
    return _home() / "keys" / (_host(endpoint) or "none")


def contexts_file() -> Path:
    """Return the file of the user's contexts. Only the user may read it.

    Raises:
        NoHomeError: The user has no home folder.
    """
    return _home() / "contexts.json"


def _home() -> Path:
    try:
        home = from_environment("XDG_CONFIG_HOME") or Path.home() / ".config"
    except RuntimeError as error:
        raise NoHomeError(
            "Your home folder is not known, so neither are your keys and contexts.",
            f"Set HOME; or put the endpoint into {ENDPOINT} and a key into {API_KEY}.",
        ) from error
    return Path(home) / "nextfire"


def checked_key(key: str, place: str) -> str:
    """Return *key* if it is well-formed and its checksum matches. Errors never show it.

    Raises:
        ClientError: *key*, which was found at *place*, is not a valid API key.
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
