"""Finds the names that write: SDK calls, and all functions that lead to one."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.mutation.source import Module, Product

_SDK_WRITE = re.compile(r"(put|update|delete|batch_write|transact_write|send|change)_[a-z_]+")
_CLIENT = re.compile(r"_?(client|sqs|dynamodb|s3|events)")


@dataclass(slots=True)
class _Class:
    name: str
    module: Module
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    bases: list[str] = field(default_factory=list)

    @property
    def is_port(self) -> bool:
        return "Protocol" in self.bases


class Writers:
    """The functions of *product* that write, found by following calls from the SDK up to the
    handlers.

    Annotations give the class of a receiver: `self._runs` has the class that `runs` is annotated
    with. A port's method writes if it does in the adapter that has all methods of the port.
    """

    def __init__(self, product: Product) -> None:
        self._classes: dict[str, _Class] = {}
        self._types: dict[Module, dict[str, set[str]]] = {}
        self._local: dict[Module, dict[str, list[ast.FunctionDef]]] = {}
        self._global = {module: set(_functions_known(module)) for module in product.modules}
        for module in product.modules:
            self._types[module] = _annotated(module)
            self._local[module] = {}
            for each in module.nodes:
                if isinstance(each, ast.FunctionDef) and module.function(each):
                    self._local[module].setdefault(each.name, []).append(each)
                if isinstance(each, ast.ClassDef):
                    methods = {m.name: m for m in each.body if isinstance(m, ast.FunctionDef)}
                    bases = [_last_name(base) for base in each.bases]
                    self._classes[each.name] = _Class(each.name, module, methods, bases)
        self._methods: set[tuple[str, str]] = set()
        self._functions: set[str] = set()
        while self._found_more(product):
            pass

    def references(self, module: Module, node: ast.AST) -> Iterator[ast.expr]:
        """The names in *node* that write: called there, or passed on to be called."""
        for each in module.names(node):
            if self._writes(module, each):
                yield each

    def is_in(self, module: Module, node: ast.AST) -> bool:
        """Whether *node* writes."""
        return next(self.references(module, node), None) is not None

    def _writes(self, module: Module, node: ast.Name | ast.Attribute) -> bool:
        match node:
            case ast.Name(id=name):
                known = name in self._functions and name in self._global[module]
                return known or self._is_local(module, node)
            case ast.Attribute(value=ast.Name(id="self"), attr=method) if (
                cls := _class_around(module, node)
            ) in self._classes and method in self._classes[cls].methods:
                return (cls, method) in self._methods
            case ast.Attribute(value=receiver, attr=method):
                name = _last_name(receiver)
                if _SDK_WRITE.fullmatch(method) and _CLIENT.fullmatch(name):
                    return True
                types = self._types_of(module, receiver)
                return any((cls, method) in self._methods for cls in types)
        return False

    def _types_of(self, module: Module, node: ast.expr) -> set[str]:
        """The classes that *node* is annotated with: in *module*, or as a member of the classes of
        the object that it is taken from, as in `self._ports.runs`.
        """
        name = _last_name(node).lstrip("_")
        found = self._types[module].get(name)
        if found is not None or not isinstance(node, ast.Attribute):
            return found or set()
        owners = self._types_of(module, node.value) & self._classes.keys()
        modules = [self._classes[owner].module for owner in owners]
        return {each for owner in modules for each in self._types[owner].get(name, ())}

    def _is_local(self, module: Module, node: ast.Name) -> bool:
        """Whether *node* names a writing function that is defined within the surrounding one."""
        if node.id not in self._local[module]:
            return False
        around = {each for each in module.above(node) if isinstance(each, ast.FunctionDef)}
        return any(
            module.function(local) in around and local not in around and self.is_in(module, local)
            for local in self._local[module][node.id]
        )

    def _all_methods(self, cls: _Class) -> set[str]:
        """Those of its bases, too."""
        bases = [self._classes[base] for base in cls.bases if base in self._classes]
        return {*cls.methods}.union(*map(self._all_methods, bases))

    def _found_more(self, product: Product) -> bool:
        before = len(self._methods) + len(self._functions)
        for name, cls in self._classes.items():
            for method, body in cls.methods.items():
                if (name, method) not in self._methods and self.is_in(cls.module, body):
                    self._methods.add((name, method))
            inherited = {m for c, m in self._methods if c in cls.bases} - cls.methods.keys()
            self._methods |= {(name, method) for method in inherited}
        for port in self._classes.values():
            if port.is_port:
                for cls in self._classes.values():
                    if _is_adapter(cls) and self._all_methods(cls) >= port.methods.keys():
                        written = {m for c, m in self._methods if c == cls.name}
                        self._methods |= {(port.name, m) for m in written & port.methods.keys()}
        for module in product.modules:
            for each in module.tree.body:
                if isinstance(each, ast.FunctionDef) and self.is_in(module, each):
                    self._functions.add(each.name)
        return len(self._methods) + len(self._functions) > before


def _is_adapter(cls: _Class) -> bool:
    """Use-case classes (`Supervisor`) are called by adapters and do not count as adapters."""
    return not cls.is_port and "/usecases/" not in cls.module.path


def _functions_known(module: Module) -> Iterator[str]:
    """The functions that *module* defines or imports."""
    for node in module.tree.body:
        match node:
            case ast.FunctionDef(name=name):
                yield name
            case ast.ImportFrom(names=names):
                yield from (each.asname or each.name for each in names)


def _annotated(module: Module) -> dict[str, set[str]]:
    """The classes that *module* annotates its variables, parameters and fields with."""
    found: dict[str, set[str]] = {}
    for node in module.nodes:
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                pass
            case ast.AnnAssign(target=target, annotation=annotation):
                name = _last_name(target)
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Name() as annotation)):
                name = _last_name(target)
            case _:
                continue
        types = {each.id for each in ast.walk(annotation) if isinstance(each, ast.Name)}
        found.setdefault(name.lstrip("_"), set()).update(types)
    return found


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _class_around(module: Module, node: ast.AST) -> str:
    return next((each.name for each in module.above(node) if isinstance(each, ast.ClassDef)), "")
