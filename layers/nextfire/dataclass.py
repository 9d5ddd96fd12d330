"""`dataclasses`, with frozen classes that cost less.

The standard library compiles two methods for each frozen class that reject assignments, and its
``__init__`` has to go around them. That is a tenth of the API's cold start, and makes each instance
three times as expensive. Here only mypy rejects assignments.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from collections.abc import Callable
    from typing import Any

    def dataclass(
        *, frozen: bool = False, eq: bool = True, **options: bool
    ) -> Callable[[type[Any]], type[Any]]:
        """`dataclasses.dataclass`. Frozen classes have a hash, but no guard at run time."""

        def decorate(cls: type[Any]) -> type[Any]:
            hashed = frozen and eq and "__hash__" not in vars(cls)
            return dataclasses.dataclass(cls, eq=eq, unsafe_hash=hashed, **options)

        return decorate


__all__ = ["dataclass", "field", "replace"]
