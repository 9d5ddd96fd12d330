"""`dataclasses`, with classes that cost less at a cold start.

The standard library compiles six methods for each frozen class, which was a fifth of the API's
cold start. Here it compiles `__init__` only. The other methods of a value are below, and only mypy
rejects assignments, so that an instance is created in a third of the time.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from collections.abc import Callable, Iterable
    from operator import attrgetter
    from reprlib import recursive_repr
    from typing import Any

    def dataclass(
        *, frozen: bool = False, eq: bool = True, **options: bool
    ) -> Callable[[type[Any]], type[Any]]:
        """`dataclasses.dataclass`. Frozen classes have a hash, but no guard at run time."""

        def decorate(cls: type[Any]) -> type[Any]:
            made = dataclasses.dataclass(cls, eq=False, repr=False, **options)
            own = vars(cls)
            if "__repr__" not in own:
                made.__repr__ = _repr
            if eq and "__eq__" not in own:
                made.__eq__ = _equality(made)
            if eq and own.get("__hash__") is None:
                made.__hash__ = _hash(made) if frozen else None
            return made

        return decorate

    def _equality(cls: type[Any]) -> Callable[[object, object], bool]:
        values = _getter(each for each in dataclasses.fields(cls) if each.compare)

        def __eq__(self: object, other: object) -> bool:  # noqa: N807
            return values(self) == values(other) if type(other) is type(self) else NotImplemented

        return __eq__

    def _hash(cls: type[Any]) -> Callable[[object], int]:
        values = _getter(
            each
            for each in dataclasses.fields(cls)
            if (each.compare if each.hash is None else each.hash)
        )

        def __hash__(self: object) -> int:  # noqa: N807
            return hash(values(self))

        return __hash__

    def _getter(fields: Iterable[dataclasses.Field[Any]]) -> Callable[[object], Any]:
        names = [each.name for each in fields]
        return attrgetter(*names) if names else lambda _: ()

    @recursive_repr()
    def _repr(self: object) -> str:
        shown = (
            f"{each.name}={getattr(self, each.name)!r}"
            for each in dataclasses.fields(self)
            if each.repr
        )
        return f"{type(self).__qualname__}({', '.join(shown)})"


__all__ = ["dataclass", "field", "replace"]
