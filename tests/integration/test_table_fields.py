"""Every attribute that a store names is in the field list of its table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters import dynamodb
from nextfire.adapters.dynamodb.control_items import CONTROL_TABLE
from nextfire.adapters.dynamodb.due_items import DUE_TABLE
from nextfire.adapters.dynamodb.endpoint_items import ENDPOINTS_TABLE
from nextfire.adapters.dynamodb.fields import Field, names
from nextfire.adapters.dynamodb.job_items import JOBS_TABLE
from nextfire.adapters.dynamodb.key_items import KEYS_TABLE
from nextfire.adapters.dynamodb.overview_items import OVERVIEW_TABLE
from nextfire.adapters.dynamodb.request_items import REQUESTS_TABLE
from nextfire.adapters.dynamodb.run_items import RUNS_TABLE
from nextfire.domain.change import CHANGED_BY

FOLDER = Path(dynamodb.__file__).parent
ROOT = Path(__file__).resolve().parents[2]
TABLES: dict[str, tuple[Field[Any], ...]] = {
    "bucket_store": REQUESTS_TABLE,
    "overview_items": OVERVIEW_TABLE,
    "overview_store": OVERVIEW_TABLE,
    "run_scan": RUNS_TABLE,
    "control_store": CONTROL_TABLE,
    "due_store": DUE_TABLE,
    "endpoint_store": ENDPOINTS_TABLE,
    "job_pause": JOBS_TABLE,
    "job_removal": JOBS_TABLE,
    "job_store": JOBS_TABLE,
    "join_store": RUNS_TABLE,
    "key_store": KEYS_TABLE,
    "request_store": REQUESTS_TABLE,
    "run_reads": RUNS_TABLE,
    "run_requests": RUNS_TABLE,
    "run_store": RUNS_TABLE,
    "run_updates": RUNS_TABLE,
}
_EXPRESSION = re.compile(r"(=|<|>|BETWEEN) :\w|attribute_\w+\(|\b(SET|REMOVE|ADD) ")
_NAME = re.compile(r"(?<![:\w])#?([a-z_]\w*)")
_FUNCTIONS = {
    *("attribute_exists", "attribute_not_exists", "attribute_type"),
    *("if_not_exists", "list_append", "contains", "size"),
}


def used_names(source: str) -> set[str]:
    """The attributes in the expressions and in the plain items of *source*."""
    return {name for text in _texts(ast.parse(source)) for name in text} - _FUNCTIONS


def _texts(tree: ast.AST) -> Iterator[list[str]]:
    nodes = [*ast.walk(tree)]
    docstrings = {each.value for each in nodes if isinstance(each, ast.Expr)}
    for node in nodes:
        if node in docstrings:
            continue
        match node:
            case ast.JoinedStr(values=parts):
                text = "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "0" for part in parts
                )
                yield _names_in(text)
            case ast.Constant(value=str(text)):
                yield _names_in(text)
            case ast.Call(func=ast.Name(id="to_item"), args=[ast.Dict(keys=keys)]):
                values = [key.value for key in keys if isinstance(key, ast.Constant)]
                yield [str(name) for name in values if not str(name).startswith(":")]


def _names_in(text: str) -> list[str]:
    return _NAME.findall(text) if _EXPRESSION.search(text) else []


@pytest.mark.parametrize("module", TABLES)
def test_a_store_uses_attributes_of_its_table_only(module: str) -> None:
    used = used_names((FOLDER / f"{module}.py").read_text())

    assert used <= {*names(TABLES[module])}


def test_every_module_with_expressions_is_checked() -> None:
    named = {path.stem for path in FOLDER.glob("*.py") if used_names(path.read_text())}

    assert named - {"change_stamp"} <= TABLES.keys()


def test_names_are_found_in_every_form_of_expression() -> None:
    source = """
def write(many, name):
    '''SET docstring = :value'''
    update = "SET #state = :running, fence = if_not_exists(fence, :zero) + :one REMOVE reason"
    condition = f"attribute_not_exists({name}) AND {many}(counted) OR taken BETWEEN :a AND :b"
    return to_item({"error": "it = bad", ":now": 1})
"""

    assert used_names(source) == {"state", "fence", "reason", "counted", "taken", "error"}


@pytest.mark.parametrize(
    ("section", "table"),
    [
        ("jobs", JOBS_TABLE),
        ("due", DUE_TABLE),
        ("runs", RUNS_TABLE),
        ("endpoints", ENDPOINTS_TABLE),
    ],
)
def test_the_page_of_tables_has_every_attribute(
    section: str, table: tuple[Field[Any], ...]
) -> None:
    page = (ROOT / "docs" / "internals" / "tables.md").read_text()
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    shown = set(re.findall(r"`([a-z_]+)`", text))

    # Explained once for all tables: the suffixes of values, and the stamp of the audit trail.
    explained = {re.sub(r"_(bytes|file)$", "", name) for name in names(table)} - {CHANGED_BY}
    assert explained <= shown
