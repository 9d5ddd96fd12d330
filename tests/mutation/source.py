"""Source code and its mutants: one expression or statement is changed, the rest is unchanged."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

FOR_TESTS = ("layers", "nextfire", "testing")
"""The package of the product that only runs in tests."""
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Mutant:
    """One removed guard.

    `path`: relative to the project's root. `start`, `end`: the bytes of the source that
    `replacement` replaces. `where`: the function's qualified name; `owner`: that of the outermost
    surrounding function, empty at module level. `change`: description of the change; with `path`
    and `where` it names the mutant, independent of its line. `lines`: the lines that a test must
    execute, by path. `around`: a digest of the unchanged surrounding function.
    """

    kind: str
    path: str
    line: int
    where: str
    owner: str
    change: str
    start: int
    end: int
    replacement: str
    lines: frozenset[tuple[str, int]] = field(repr=False)
    around: str

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}"

    @property
    def name(self) -> str:
        return f"{self.path} {self.where}: {self.change}"

    def applied(self, source: bytes) -> bytes:
        """Apply the change to *source*, the content of `path`."""
        return source[: self.start] + self.replacement.encode() + source[self.end :]


class Module:
    """A parsed source file whose nodes know their parents."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.tree = ast.parse(source)
        self._parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }
        self._names: dict[ast.AST, list[ast.Name | ast.Attribute]] = {}
        self._line_starts = [0]
        for line in source.splitlines(keepends=True):
            self._line_starts.append(self._line_starts[-1] + len(line))

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes, in source order."""
        found = [node for node in ast.walk(self.tree) if hasattr(node, "lineno")]
        return sorted(found, key=self.span)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """The bytes of *node*: start and end."""
        place: Any = node
        start = self._line_starts[place.lineno - 1] + place.col_offset
        return start, self._line_starts[place.end_lineno - 1] + place.end_col_offset

    def text(self, node: ast.AST) -> str:
        """The source of *node*."""
        start, end = self.span(node)
        return self.source[start:end].decode()

    def names(self, node: ast.AST) -> list[ast.Name | ast.Attribute]:
        """The variables and attributes in *node*."""
        if node not in self._names:
            found = (each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute))
            self._names[node] = [*found]
        return self._names[node]

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(node)

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The ancestors of *node*, from the inside out."""
        while (found := self._parents.get(node)) is not None:
            yield found
            node = found

    def function(self, node: ast.AST) -> Function | None:
        """The innermost function (or lambda) around *node*."""
        return next((each for each in self.above(node) if isinstance(each, Function)), None)

    def where(self, node: ast.AST) -> str:
        """The qualified name of the function around *node*, or of the constant that it is assigned
        to.
        """
        names = [
            each.name
            for each in (node, *self.above(node))
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        ]
        return ".".join(reversed(names)) or self.constant(node) or "<module>"

    def owner(self, node: ast.AST) -> str:
        """The qualified name of the outermost function whose body contains *node*, or an empty
        string.
        """
        names: list[str] = []
        below = node
        for each in self.above(node):
            if isinstance(each, ast.FunctionDef) and below in each.body:
                names = [each.name]
            elif isinstance(each, ast.ClassDef):
                names.append(each.name)
            below = each
        inside = any(isinstance(each, ast.FunctionDef) for each in self.above(node))
        return ".".join(reversed(names)) if inside else ""

    def outermost(self, node: ast.AST) -> ast.AST:
        """The outermost function around *node*, or the statement of the module or class."""
        inside = [
            each
            for each in (node, *self.above(node))
            if isinstance(each, ast.stmt) and not isinstance(each, ast.ClassDef)
        ]
        return inside[-1] if inside else node

    def constant(self, node: ast.AST) -> str:
        """The module-level name that the value around *node* is assigned to, or an empty string."""
        for each in (node, *self.above(node)):
            if self.parent(each) is self.tree:
                match each:
                    case ast.Assign(targets=[ast.Name(id=name)]):
                        return name
                    case ast.AnnAssign(target=ast.Name(id=name)):
                        return name
        return ""

    def line_span(self, node: ast.AST) -> set[int]:
        """The lines that run when *node* does: its own and the first line of its statement."""
        lines = set(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # type: ignore[attr-defined]
        statement = next(
            (each for each in (node, *self.above(node)) if isinstance(each, ast.stmt)), None
        )
        if statement is not None and not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            lines.add(statement.lineno)
        return lines


class Product:
    """All modules, with the uses of names across them."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules

    @classmethod
    def read(cls, root: Path, folders: tuple[str, ...]) -> Product:
        """Parse the modules below *folders* of *root*, without those for tests of jobs."""
        found = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
        paths = [path for path in found if path.relative_to(root).parts[:3] != FOR_TESTS]
        return cls([Module(str(path.relative_to(root)), path.read_bytes()) for path in paths])

    def mutant(
        self, kind: str, module: Module, node: ast.AST, replacement: str, change: str
    ) -> Mutant:
        """The mutant that replaces *node* with *replacement*."""
        return self.mutant_of_span(kind, module, node, module.span(node), replacement, change)

    def mutant_of_span(
        self,
        kind: str,
        module: Module,
        node: ast.AST,
        span: tuple[int, int],
        replacement: str,
        change: str,
    ) -> Mutant:
        """Like `mutant`, for the bytes *span*; *node* is their position."""
        lines = frozenset((module.path, line) for line in module.line_span(node))
        if module.function(node) is None and (name := module.constant(node)):
            lines = self._uses(name)
        words = " ".join(change.split())
        line = module.source[: span[0]].count(b"\n") + 1
        where = module.where(node)
        owner = module.owner(node)
        digest = hashlib.sha256(module.text(module.outermost(node)).encode()).hexdigest()[:16]
        return Mutant(
            kind, module.path, line, where, owner, words, *span, replacement, lines, digest
        )

    def _uses(self, name: str) -> frozenset[tuple[str, int]]:
        """The lines in functions that read *name*."""
        return frozenset(self._all_uses.get(name, ()))

    @cached_property
    def _all_uses(self) -> dict[str, set[tuple[str, int]]]:
        """The result of `_uses`, by name."""
        found: dict[str, set[tuple[str, int]]] = {}
        for module in self.modules:
            for node in module.nodes:
                if isinstance(node, ast.Name) and module.function(node):
                    lines = found.setdefault(node.id, set())
                    lines.update((module.path, line) for line in module.line_span(node))
        return found


def names_in(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """The variables that *node* reads (`ast.Load`) or binds (`ast.Store`)."""
    return {
        each.id
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, context)
    }
