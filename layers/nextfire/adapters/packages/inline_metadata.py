"""Metadata that scripts declare inline (PEP 723): dependencies, and the versions of Python."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nextfire.dataclass import dataclass

_BLOCK, _END = "# /// script", "# ///"
_MAX_CHARS = 2 << 20
"""Maximum size of a block: a lock of hundreds of packages, with 140 hashes for some of them."""
_MAX_DOTS = 500
"""Maximum number of dots in a line: a key of n names takes `tomllib` n² steps, in the executor."""
_CLAUSE = re.compile(r"(~=|==|!=|<=|>=|<|>)\s*(\d+(?:\.\d+)*)(\.\*)?")


@dataclass(frozen=True, slots=True)
class InlineMetadata:
    """Metadata that a script declares inline.

    `dependencies`: requirements (PEP 508). `locked`: lines of a requirements file with hashes,
    which are installed instead; None without a lock.
    """

    dependencies: tuple[str, ...] = ()
    requires_python: str = ""
    locked: tuple[str, ...] | None = None


def parse_inline_metadata(source: bytes) -> InlineMetadata:
    """Parse the block ``# /// script`` … ``# ///`` in *source*.

    Raises:
        ValueError: *source* has several such blocks, or the block is malformed.
    """
    lines = iter(source.decode("utf-8-sig", errors="replace").splitlines())
    begun = (_block(lines) for line in lines if line.rstrip() == _BLOCK)
    blocks = [block for block in begun if block is not None]
    if len(blocks) > 1:
        raise ValueError("it has several blocks '# /// script'. Keep only one")
    if not blocks:
        return InlineMetadata()
    block = "\n".join(blocks[0])
    if len(block) > _MAX_CHARS or any(line.count(".") > _MAX_DOTS for line in blocks[0]):
        raise ValueError(
            f"its block '# /// script' has more than {_MAX_CHARS} characters, or a line with more "
            f"than {_MAX_DOTS} dots. Write each dependency in a separate line"
        )
    try:
        metadata = tomllib.loads(block)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"its block '# /// script' is not valid TOML: {error}") from error
    dependencies, python = metadata.get("dependencies", []), metadata.get("requires-python", "")
    if not isinstance(dependencies, list) or not all(isinstance(d, str) for d in dependencies):
        raise ValueError("in its block '# /// script', dependencies is not a list of strings")
    if not isinstance(python, str):
        raise ValueError(  # noqa: TRY004 - the script is wrong, not the caller
            "in its block '# /// script', requires-python is not a string"
        )
    return InlineMetadata(tuple(dependencies), python, _locked(metadata))


def _locked(metadata: Mapping[str, Any]) -> tuple[str, ...] | None:
    """The lock in the table ``[tool.nextfire]``; or None."""
    tool = metadata.get("tool", {})
    ours = tool.get("nextfire", {}) if isinstance(tool, dict) else {}
    locked = ours.get("locked") if isinstance(ours, dict) else None
    if locked is None:
        return None
    if not isinstance(locked, list) or not all(isinstance(line, str) for line in locked):
        raise ValueError(
            "in its block '# /// script', tool.nextfire.locked is not a list of strings"
        )
    return tuple(locked)


def _block(lines: Iterator[str]) -> list[str] | None:
    """The content of the block whose first line was just read; None if it is not terminated."""
    content: list[str] = []
    end: int | None = None
    for line in lines:
        if line.rstrip() == _END:
            end = len(content)  # the last such line of the comment ends it
        if line != "#" and not line.startswith("# "):
            break
        content.append(line[2:])
    return content[:end] if end is not None else None


def python_satisfies(version: Sequence[int], required: str) -> bool:
    """Whether Python *version* satisfies *required*, for example ``>=3.11,<3.14``.

    Raises:
        ValueError: *required* is malformed.
    """
    for clause in filter(None, (part.strip() for part in required.split(","))):
        match = _CLAUSE.fullmatch(clause)
        if match is None:
            raise ValueError(f"invalid requires-python {required!r}: use, for example, '>=3.11'")
        operator, number, wildcard = match.groups()
        wanted = [int(part) for part in number.split(".")]
        prefix = list(version[: len(wanted)]) == wanted
        have = list(version) + [0] * (len(wanted) - len(version))
        want = wanted + [0] * (len(version) - len(wanted))
        good = {
            "==": prefix if wildcard else have == want,
            "!=": not prefix if wildcard else have != want,
            "~=": have >= want and have[: len(wanted) - 1] == wanted[:-1],
            ">=": have >= want,
            "<=": have <= want,
            ">": have > want,
            "<": have < want,
        }[operator]
        if not good:
            return False
    return True
