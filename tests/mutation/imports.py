"""Which files import which modules, by their source."""

from __future__ import annotations

import re
from pathlib import Path


def with_helpers(root: Path, file: str) -> bytes:
    """The source of the test *file*, and of the helpers in its folder that it imports."""
    source = (root / file).read_bytes()
    folder = file.rpartition("/")[0]
    helper = rf"^from {folder.replace('/', '.')}\.(\w+) import"
    names = re.findall(helper, source.decode(), re.MULTILINE)
    return b"\n".join([source, *((root / folder / f"{name}.py").read_bytes() for name in names)])


def imports(source: bytes, modules: set[str]) -> bool:
    """Whether *source* imports one of *modules*, given by their files."""
    for module in modules:
        package, _, name = module.removesuffix(".py").removeprefix("layers/").rpartition("/")
        dotted = package.replace("/", ".")
        whole, part = rf"{dotted}\.{name}\b", rf"{dotted} import .*\b{name}\b"
        text = rf"^(from {whole}|from {part}|import {whole})"
        if re.search(text.encode(), source, re.MULTILINE):
            return True
    return False
