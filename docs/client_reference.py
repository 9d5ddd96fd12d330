"""Writes docs/reference/python-client.md from the client's signatures and docstrings."""  # noqa: INP001 - see reference.py

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nextfire import Client

PAGE = Path(__file__).with_name("reference") / "python-client.md"
_MARK = "written by `make docs`. -->\n"
_WIDTH = 88
_SECTIONS = re.compile(r"^(Args|Raises|Returns|Yields|Example):\n", re.MULTILINE)


def page() -> str:
    """Return the whole page: the part written by hand, up to the mark, and the methods."""
    parts = [PAGE.read_text().partition(_MARK)[0] + _MARK, "## Client\n"]
    parts += ["\n".join(_entry("Client", Client.__init__, Client.__init__.__doc__ or ""))]
    parts.append("## Methods\n")
    for name, member in _members():
        parts.append(f"### {name}\n")
        if isinstance(member, property):
            parts.append(f"Property. {' '.join((member.__doc__ or '').split())}\n")
        else:
            parts.append("\n".join(_entry(name, member, member.__doc__ or "")))
    return "\n".join(parts)


def _members() -> Iterator[tuple[str, Any]]:
    """The public members, as the modules of the client have them in order."""
    for part in Client.__mro__[:-1]:
        yield from ((name, each) for name, each in vars(part).items() if name[0] != "_")


def _entry(name: str, method: Callable[..., Any], doc: str) -> Iterator[str]:
    yield f"```python\n{_signature(name, method)}\n```\n"
    summary, *sections = _SECTIONS.split(inspect.cleandoc(doc))
    yield f"{' '.join(summary.split())}\n"
    for title, text in zip(sections[::2], sections[1::2], strict=True):
        if title == "Example":
            yield f"```python\n{inspect.cleandoc(text)}\n```\n"
        else:
            yield f"{title}:\n"
            yield "\n".join(_items(inspect.cleandoc(text))) + "\n"


def _items(text: str) -> Iterator[str]:
    """The entries of a section of a docstring; continued lines are indented."""
    for entry in re.split(r"\n(?=\S)", text):
        name, _, meaning = " ".join(entry.split()).partition(": ")
        yield f"- `{name}`: {meaning}"


def _signature(name: str, method: Callable[..., Any]) -> str:
    """The call, on one line if it fits, else with a parameter per line."""
    whole = inspect.signature(method)
    parameters = [each for each in whole.parameters.values() if each.name != "self"]
    shown: list[str] = []
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        shown.append(_parameter(each))
    returned = "" if whole.return_annotation in (None, "None") else f" -> {whole.return_annotation}"
    line = f"{name}({', '.join(shown)}){returned}"
    if len(line) <= _WIDTH:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){returned}"


def _parameter(parameter: inspect.Parameter) -> str:
    default = parameter.default
    shown = f"{parameter.name}: {parameter.annotation}"
    if default is parameter.empty:
        return shown
    return f"{shown} = {repr(default) if isinstance(default, str | int | float | None) else '...'}"


if __name__ == "__main__":
    PAGE.write_text(page())
