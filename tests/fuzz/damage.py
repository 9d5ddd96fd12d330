"""Generators of damaged items: attributes that are absent, of another type, or damaged inside."""

from __future__ import annotations

import base64
import json
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.items import Item, payloads, texts

numbers = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(
        ["0", "-1", "1", "1.5", "1E+125", "-9.9E+125", "1E-130", "9" * 38, "253402300800000"]
    ),
)
odd_texts = st.one_of(
    texts,
    st.sampled_from(
        [
            *("", " ", "null", "NaN", "[]", "{}", "Infinity", "0", "-", "\x00", "\n", "é", "💥"),
            *(
                "2026-05-24T12:00:00Z",
                "2026-05-24",
                "0001-01-01T00:00:00+14:00",
                "9999-12-31T23:59",
            ),
            *("9999-12-31T23:59:59-14:00", "24:00", "PENDING", "RUNNING", "FIRE", "a/b#c"),
            *("[" * 3000, '{"a":' * 3000, "1e999", '{"type":"CRON"}', "9" * 5000),
        ]
    ),
)
attributes: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        odd_texts.map(lambda text: {"S": text}),
        numbers.map(lambda number: {"N": number}),
        st.booleans().map(lambda truth: {"BOOL": truth}),
        st.just({"NULL": True}),
        st.binary(max_size=8).map(lambda raw: {"B64": base64.b64encode(raw).decode()}),
        st.lists(odd_texts, min_size=1, max_size=2, unique=True).map(lambda each: {"SS": each}),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: {"L": each}),
        st.dictionaries(texts.filter(bool), inner, max_size=3).map(lambda each: {"M": each}),
    ),
    max_leaves=4,
)


@st.composite
def damaged(draw: st.DrawFn, items: st.SearchStrategy[Item], *keys: str) -> Item:
    """*items* in which attributes are absent, of another type, or damaged inside; *keys* stay
    intact, because a table requires them.
    """
    item = dict(draw(items))
    for _ in range(draw(st.integers(1, 3))):
        names = [name for name in sorted(item) if name not in keys]
        if not names:
            break
        name = draw(st.sampled_from([*names, "unknown"]))
        how = draw(st.sampled_from(["gone", "other", "within"]))
        if how == "gone":
            item.pop(name, None)
        elif how == "within" and name in item:
            item[name] = draw(_within(item[name]))
        else:
            item[name] = draw(attributes)
    return item


@st.composite
def _within(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    """*value* with another content of the same type."""
    ((kind, content),) = value.items()
    if kind == "S":
        return {"S": draw(_json_within(content) | _cut(content) | odd_texts)}
    if kind == "N":
        return {"N": draw(numbers)}
    if kind == "L" and content:
        at = draw(st.integers(0, len(content) - 1))
        return {"L": [*content[:at], draw(_within(content[at]) | attributes), *content[at + 1 :]]}
    if kind == "M" and content:
        name = draw(st.sampled_from(sorted(content)))
        return {"M": content | {name: draw(_within(content[name]) | attributes)}}
    return draw(attributes)


@st.composite
def _cut(draw: st.DrawFn, text: str) -> str:
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(texts) + text[at + draw(st.integers(0, 2)) :]


@st.composite
def _json_within(draw: st.DrawFn, text: str) -> str:
    """*text* with one field changed, if it is a JSON object or a list of them."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return draw(odd_texts)
    inner = document[0] if isinstance(document, list) and document else document
    if isinstance(inner, dict) and inner:
        name = draw(st.sampled_from([*sorted(inner), "unknown"]))
        if draw(st.booleans()):
            inner.pop(name, None)
        else:
            inner[name] = draw(payloads)
    return json.dumps(document)
