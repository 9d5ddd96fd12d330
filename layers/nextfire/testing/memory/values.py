"""Secrets and parameters in memory."""

from __future__ import annotations

from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.references import ParameterReference, SecretReference


class MemorySecrets:
    """`Secrets`. Values by full name: ``<tenant>/<name>``, followed by ``#<key>`` for one key of a
    secret. `remedy`: of an error about one that is absent; ``{name}`` is its name.
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.remedy = "Create it."

    def resolve(
        self,
        tenant: str,
        reference: SecretReference | ParameterReference,
        *,
        again: bool = False,  # noqa: ARG002 - nothing is cached
    ) -> str:
        if isinstance(reference, SecretReference):
            noun, whole = "secret", f"{tenant}/{reference.secret}"
            name = f"{whole}#{reference.key}" if reference.key else whole
            if whole in self.values and name not in self.values:
                raise InvalidInputError(noun, whole, f"it has no key {reference.key!r}", "Add it.")
        else:
            noun, name = "parameter", f"{tenant}/{reference.parameter}"
        if name not in self.values:
            plain = name.removeprefix(f"{tenant}/")
            raise NotFoundError(noun, name, self.remedy.format(name=plain))
        return self.values[name]
