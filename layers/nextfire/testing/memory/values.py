"""Secrets and parameters in memory."""

from __future__ import annotations

from nextfire.domain.errors import InvalidInputError, NotFoundError
from nextfire.domain.references import Reference, SecretReference


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
        reference: Reference,
        *,
        again: bool = False,  # noqa: ARG002 - nothing is cached
    ) -> str:
        noun, name = reference.noun, f"{tenant}/{reference.name}"
        if isinstance(reference, SecretReference) and reference.key:
            whole, name = name, f"{name}#{reference.key}"
            if whole in self.values and name not in self.values:
                raise InvalidInputError(noun, whole, f"it has no key {reference.key!r}", "Add it.")
        if name not in self.values:
            plain = name.removeprefix(f"{tenant}/")
            raise NotFoundError(noun, name, self.remedy.format(name=plain))
        return self.values[name]
