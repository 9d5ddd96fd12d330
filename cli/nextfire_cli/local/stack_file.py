"""The file in which the running local stack describes itself to commands and clients."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from nextfire.client import ClientError, folder
from nextfire_cli.local.stack_info import LocalInfo

T = TypeVar("T", bound=LocalInfo)


class StackFile:
    """The file in the folder *state*. It exists while the stack runs, and until it is stopped."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._path = state / folder.FILE

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def read(self, model: type[T], *, kind: str | None = None) -> T | None:
        """The description; None if the file is absent, or describes another stack than *kind*.

        Raises:
            ClientError: It cannot be trusted, or does not describe a stack.
        """
        try:
            found = folder.read_stack(self._state)
        except FileNotFoundError:
            return None
        if kind is not None and found.get("kind") != kind:
            return None
        try:
            return model.model_validate(found)
        except ValidationError as error:
            raise ClientError(
                f"{self._path} does not describe a local stack.",
                "Stop `nextfire up` and start it again: it writes the file.",
            ) from error

    def write(self, info: LocalInfo) -> None:
        """Replace it. Clients trust it: only its user can read it."""
        folder.write_private(self._path, info.model_dump_json(indent=2))

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
