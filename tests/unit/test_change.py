"""Parsing `changed_by` for the audit log: a writer of the table can store any text there."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.chain import START, chain
from nextfire.domain.change import MAX_TEXT, ItemChange, read_changed_by

AT = datetime(2026, 5, 24, 12, tzinfo=UTC)
STAMP = {
    "tenant": "acme",
    "principal": "größer",
    "operation": "changeJob",
    "resource": {"jobId": "a"},
    "at": "2026-05-24T12:00:00.000Z",
    "requestId": "r",
    "sourceIp": "192.0.2.1",
    "idempotencyKey": "k",
    "sha256": "0" * 64,
    "status": 404,
    "omitted": 3,
    "n": 1,
}
UNREADABLE = [
    "",
    "[" * 100_000,
    "[" * 8_000,
    '{"a":' * 1_600,
    r'{"a":"\ud800"}',
    "\ud800",
    "[]",
    "{}",
    '{"n":' + "9" * 5_000 + "}",
    '{"n":NaN,"status":1e999,"omitted":-1}',
    '{"n":true,"tenant":1,"resource":"a"}',
    '{"tenant":"' + "a" * 8_192 + '"}',
]


def test_a_stamp_of_the_api_is_kept_whole() -> None:
    assert read_changed_by(json.dumps(STAMP, ensure_ascii=False)) == STAMP


@pytest.mark.parametrize("text", UNREADABLE, ids=range(len(UNREADABLE)))
def test_an_unreadable_stamp_is_kept_in_part(text: str) -> None:
    found = read_changed_by(text)

    assert found == {"unreadable": text[:MAX_TEXT].replace("\ud800", "?")}


def test_unknown_members_are_dropped_and_texts_bounded() -> None:
    resource = {f"name{number:02d}": "b" * 100 for number in range(30)} | {"list": [1]}
    text = json.dumps({"principal": "a" * 2_000, "x": [[]], "resource": resource})

    found = read_changed_by(text)

    assert found.keys() == {"principal", "resource"}
    assert (len(found["principal"]), len(found["resource"])) == (1_024, 10)


def test_surrogates_are_replaced() -> None:
    text = r'{"tenant":"a\ud800b","resource":{"\udfff":"\ud800"}}'

    assert read_changed_by(text) == {"tenant": "a?b", "resource": {"?": "?"}}


_JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*STAMP, "\ud800"]), inner),
)
_ANY = st.text(st.characters(exclude_categories=()))


@given(_ANY | _JSON.map(json.dumps), _ANY)
def test_whatever_is_written_becomes_an_event(text: str, name: str) -> None:
    change = ItemChange("1", "jobs", "MODIFY", {name: name}, AT, read_changed_by(text), (name,))

    [event] = chain([change.body("2026-05-24T12:00:00Z")], START)

    assert json.loads(json.dumps(event, ensure_ascii=False).encode()) == event
