"""Secrets and parameters in files."""

from __future__ import annotations

import stat
from pathlib import Path

from nextfire.adapters.files.folder import Folder, translated
from nextfire.adapters.secret_values import invalid_secret, usable_text
from nextfire.domain.errors import NotFoundError
from nextfire.domain.places import tenant_place
from nextfire.domain.references import Reference

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_DEFAULT_POOL = "default"


class FileSecrets:
    """`Secrets` in the folder *root*: ``secrets/pools/<pool>/<tenant>/<secret>`` and
    ``parameters/pools/<pool>/<tenant>/<parameter>``.

    A file holds the value; a line break at its end is not part of it. Only the owner may have
    access to the file.
    """

    def __init__(self, root: Path, *, pool: str) -> None:
        self._folder = Folder(root)
        self._pool = pool

    def resolve(
        self,
        tenant: str,
        reference: Reference,
        *,
        again: bool = False,  # noqa: ARG002 - nothing is cached
    ) -> str:
        noun, name = reference.noun, self._place(tenant, reference)
        path = self._folder.path(name)
        content = self._folder.read(path)
        if content is None:
            parameter = "--parameter " if noun == "parameter" else ""
            pool = "" if self._pool == _DEFAULT_POOL else f" --pool {self._pool}"
            command = f"nextfire secrets put {parameter}{reference.name}{pool}"
            raise NotFoundError(noun, name, f"Create the {noun}: {command}")
        with translated("read", path):
            if path.stat().st_mode & _OTHERS:
                problem = f"other users have access to its file. Run: chmod 600 {path}"
                raise invalid_secret(noun, name, problem)
        return usable_text(_text(content), reference, name)

    def store(self, tenant: str, reference: Reference, value: str) -> Path:
        """Store *value*, which only the owner can read. Returns its file.

        Raises:
            UnavailableError: The disk is full or the folder is not writable.
        """
        path = self._folder.path(self._place(tenant, reference))
        self._folder.write(path, value.encode())
        return path

    def names(self, tenant: str) -> dict[str, list[str]]:
        """Return the names of the secrets (``secret``) and of the parameters (``parameter``) of
        *tenant*, sorted. Reads no value.

        Raises:
            UnavailableError: A folder is not readable.
        """
        place = tenant_place(self._pool, tenant)
        return {
            noun: self._folder.below(self._folder.path(f"{noun}s/{place}"))
            for noun in ("secret", "parameter")
        }

    def delete(self, tenant: str, reference: Reference) -> bool:
        """Delete the value of *reference*. Returns whether it existed.

        Raises:
            UnavailableError: The folder is not writable.
        """
        return self._folder.remove(self._folder.path(self._place(tenant, reference)))

    def _place(self, tenant: str, reference: Reference) -> str:
        return f"{reference.noun}s/{tenant_place(self._pool, tenant)}{reference.name}"


def _text(content: bytes) -> str | None:
    try:
        return content.decode().removesuffix("\n")
    except UnicodeDecodeError:
        return None
