"""Defers imports of `typer.rich_utils` that no help text needs, and that take half of its time."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

_SLOW = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}
"""Modules, and the class of each that `typer.rich_utils` names."""


class _Later(type):
    """A class that stands for the class of the same name in the module `place`: it may be named in
    annotations, and is imported when it is used.
    """

    place: str

    def __call__(cls, *args: object, **options: object) -> Any:  # noqa: ANN401 — of the real class
        return getattr(_real(cls.place), cls.__name__)(*args, **options)

    def __getattr__(cls, name: str) -> Any:  # noqa: ANN401 — the same
        return getattr(getattr(_real(cls.place), cls.__name__), name)


class _Module(ModuleType):
    """Stands for a module that is imported when anything else of it is used."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 — of the real module
        if name.startswith("__"):  # what the import system looks for
            raise AttributeError(name)
        return getattr(_real(self.__name__), name)


def defer_slow_imports() -> None:
    """Call this before the first help text."""
    for place, name in _SLOW.items():
        if place not in sys.modules:
            module = _Module(place)
            setattr(module, name, _Later(name, (), {"place": place}))
            sys.modules[place] = module


def _real(place: str) -> ModuleType:
    if isinstance(sys.modules.get(place), _Module):
        del sys.modules[place]
    return import_module(place)
