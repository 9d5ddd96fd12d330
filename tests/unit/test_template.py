"""Templates of bodies and inputs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.targets.template import (
    MAX_RENDERED_BYTES,
    TemplateError,
    context_of,
    example_context,
    render,
)
from tests.callbacks import a_callback, a_running_run

PAYLOAD: Any = {
    "id": 7,
    "who": "Ann",
    "items": [{"n": 1}, {"n": None}],
    "a-b": True,
    "o": {"x": 1.5},
}
CONTEXT = example_context(PAYLOAD)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("template", "rendered"),
    [
        ("plain", "plain"),
        ("{{payload.id}}", 7),
        ("{{ payload.id }}", 7),
        ("{{" + " " * 50_000, "{{" + " " * 50_000),  # hours, if blanks backtrack
        ("{{payload.items.0.n}}", 1),
        ("{{payload.items.1.n}}", None),
        ("{{payload.a-b}}", True),
        ("id {{payload.id}} of {{payload.who}}", "id 7 of Ann"),
        ("{{payload.o}} {{payload.items}}", '{"x":1.5} [{"n":1},{"n":null}]'),
        ({"a": ["{{payload.who}}", 3], "{{payload.who}}": None}, {"a": ["Ann", 3], "Ann": None}),
        ("{{payload}}", PAYLOAD),
        ("{not} {{}} }}{{", "{not} {{}} }}{{"),
    ],
)
def test_placeholders_become_values(template: Any, rendered: Any) -> None:
    assert render(template, CONTEXT) == rendered


@pytest.mark.parametrize(
    ("template", "hint"),
    [
        ("{{payload.idd}}", "did you mean {{payload.id}}?"),
        ("{{run.executionID}}", "did you mean {{run.executionId}}?"),
        ("{{secrets.token}}", "available: job, payload, run"),
        ("{{payload.items.2}}", "payload.items has no members"),
        ("{{payload.who.x}}", "payload.who has no members"),
        ("{{payload.__class__}}", "payload has"),
        ("{{payload.items.-1}}", "no members"),
        ("{{payload.items.0000000009}}", "no members"),
        ("{{payload.items.1000000000}}", "no members"),
    ],
)
def test_an_unknown_placeholder_is_an_error_with_a_hint(template: str, hint: str) -> None:
    with pytest.raises(TemplateError) as unknown:
        render(template, CONTEXT)

    assert hint in str(unknown.value)


def test_values_are_not_rendered_again() -> None:
    context = example_context({"text": "{{run.attempt}}"})

    assert render("{{payload.text}} {{payload.text}}", context) == "{{run.attempt}} {{run.attempt}}"


def test_a_result_that_is_too_large_is_an_error() -> None:
    context = example_context("x" * 1000)

    with pytest.raises(TemplateError, match="bytes"):
        render(["{{payload}}"] * (MAX_RENDERED_BYTES // 1000 + 1), context)


def test_a_template_that_is_nested_too_deeply_is_an_error() -> None:
    template: Any = "x"
    for _ in range(100):
        template = [template]

    with pytest.raises(TemplateError, match="deep"):
        render(template, CONTEXT)


def test_the_context_of_a_run() -> None:
    job, run = a_callback(), a_running_run()

    context = context_of(job, run)

    assert context["payload"] == {"id": 7}
    assert context["run"] == {
        "executionId": run.key.execution_id,
        "attempt": 1,
        "scheduledAt": "2026-05-24T12:00:00Z",
    }
    assert context["job"] == {"id": "report", "tenant": "acme"}
    assert context_of(job, a_running_run(payload='{"id": 8}'))["payload"] == {"id": 8}


@given(JSON, JSON)
def test_any_template_renders_or_says_why_not(template: Any, payload: Any) -> None:
    try:
        rendered = render(template, example_context(payload))
    except TemplateError:
        return
    assert len(json.dumps(rendered)) < 20 * MAX_RENDERED_BYTES
