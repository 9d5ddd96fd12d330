"""Applies a mutant to an imported module by replacing the code of one function."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

from tests.mutation.source import Mutant


def swap(mutant: Mutant, source: bytes) -> Callable[[], None] | None:
    """Returns a function that applies *mutant*, in the module with *source*, to this process.
    Returns None if that is impossible: outside of functions, or in a function that was not
    imported.
    """
    module = sys.modules.get(_module_name(mutant.path))
    if module is None or not mutant.owner:
        return None
    names = mutant.owner.split(".")
    function = _function(module, names)
    file = Path(mutant.path).resolve()
    code = _code(compile(mutant.applied(source), str(file), "exec", dont_inherit=True), names)
    if function is None or code is None or code.co_freevars != function.__code__.co_freevars:
        return None
    if code == function.__code__:
        return None  # the change is outside its body

    def put_in() -> None:
        function.__code__ = code
        _clear_caches()

    return put_in


def first_line(mutant: Mutant) -> tuple[str, int] | None:
    """The path and line by which `Calls` identifies the mutant's function."""
    module = sys.modules.get(_module_name(mutant.path))
    function = _function(module, mutant.owner.split(".")) if module and mutant.owner else None
    return None if function is None else (mutant.path, function.__code__.co_firstlineno)


class Calls:
    """Records the functions that are called while tests are imported: their results come from the
    unchanged code.
    """

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    def begin(self) -> None:
        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call":
                self._codes.add(frame.f_code)

        sys.setprofile(note)

    def end(self, folder: Path) -> set[tuple[str, int]]:
        """The called functions in files below *folder*, by path and line."""
        sys.setprofile(None)
        paths = [(Path(code.co_filename), code.co_firstlineno) for code in self._codes]
        return {
            (str(path.relative_to(folder)), line)
            for path, line in paths
            if path.is_relative_to(folder)
        }


def _module_name(path: str) -> str:
    return path.removeprefix("layers/").removesuffix(".py").replace("/", ".")


def _function(module: Any, names: list[str]) -> FunctionType | None:
    found = module
    for name in names:
        found = inspect.getattr_static(found, name, None)
    if isinstance(found, property):
        found = found.fget
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    found = inspect.unwrap(found) if callable(found) else None
    return found if isinstance(found, FunctionType) else None


def _code(code: CodeType, names: list[str]) -> CodeType | None:
    for name in names:
        inner = [c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name]
        if len(inner) != 1:
            return None
        [code] = inner
    return code


def _clear_caches() -> None:
    """Clear the caches of the project's functions."""
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] in {"nextfire", "functions"}:
            for each in vars(module).values():
                if hasattr(each, "cache_clear"):
                    each.cache_clear()
