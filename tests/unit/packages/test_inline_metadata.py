"""The inline metadata of a script: what it may say."""

from __future__ import annotations

import pytest

from nextfire.adapters.packages.inline_metadata import (
    InlineMetadata,
    parse_inline_metadata,
    python_satisfies,
)
from tests.unit.packages.conftest import inline

# Inline metadata


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("print(1)", InlineMetadata()),
        ("# /// script\n# dependencies = ['a']\nprint(1)", InlineMetadata()),  # no end marker
        ("# /// other\n# dependencies = ['a']\n# ///\n", InlineMetadata()),
        ("# /// script\n# ///\n", InlineMetadata()),
        (inline("dependencies = ['a>=1', 'b']"), InlineMetadata(("a>=1", "b"))),
        (
            inline("requires-python = '>=3.11'", "#", "dependencies = []"),
            InlineMetadata((), ">=3.11"),
        ),
        ("#!python\n\n" + inline("dependencies = ['a']") + "print(1)\n", InlineMetadata(("a",))),
        ("# /// script\n#\n# dependencies = [\n#   'a',\n# ]\n# ///\n", InlineMetadata(("a",))),
        ("\ufeff" + inline("dependencies = ['a']"), InlineMetadata(("a",))),  # as Windows writes it
        (
            inline("dependencies = ['a']", "[tool.uv]", "exclude-newer = '2026'"),
            InlineMetadata(("a",)),
        ),
    ],
    ids=range(10),
)
def test_inline_metadata(source: str, said: InlineMetadata) -> None:
    assert parse_inline_metadata(source.encode()) == said
    assert parse_inline_metadata(source.replace("\n", "\r\n").encode()) == said


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (inline() + "\n" + inline(), "several blocks"),
        (inline("dependencies = ["), "is not valid TOML"),
        (inline("dependencies = " + "[" * 20_000), "is not valid TOML"),
        (inline("dependencies = 'a'"), "not a list of strings"),
        (inline("dependencies = [1]"), "not a list of strings"),
        (inline("requires-python = 3"), "not a string"),
        (inline(".".join("a" * 50_000) + " = 1"), "a line with more than 500 dots"),
        (inline(*["dependencies = []"] * 200_000), "more than 2097152 characters"),
        ("# /// script\n" + "# ///\n" * 700_000, "more than 2097152 characters"),
    ],
    ids=range(9),
)
def test_malformed_metadata_is_refused(source: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_inline_metadata(source.encode())


@pytest.mark.parametrize(
    ("required", "suited"),
    [
        ("", True),
        (">=3.11", True),
        (">=3.11.5", False),
        (">3.11", True),
        (">=3.11,<3.14", True),
        ("<3.11", False),
        ("<=3.11.2", True),
        ("==3.11.*", True),
        ("==3.12.*", False),
        ("==3.11.2", True),
        ("!=3.11.2", False),
        ("!=3.12.*", True),
        ("~=3.11", True),
        ("~=3.10", True),
        ("~=3.11.0", True),
        ("~=3.12.0", False),
        ("~=2.7", False),
        (">= 3.8 , < 4", True),
    ],
)
def test_required_pythons(required: str, suited: bool) -> None:  # noqa: FBT001
    assert python_satisfies((3, 11, 2), required) is suited


@pytest.mark.parametrize("required", ["3.11", ">=three", ">=3.11;", "=>3.11"])
def test_malformed_requirement_of_a_python_is_refused(required: str) -> None:
    with pytest.raises(ValueError, match="invalid requires-python"):
        python_satisfies((3, 11, 2), required)
