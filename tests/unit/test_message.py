"""Encoding and decoding of messages; malformed ones are rejected."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.errors import UndecodableError, UnknownVersionError
from nextfire.domain.message import RunMessage, decode_message
from tests.builders import a_message, run_key

GOOD = json.loads(a_message().encode())


def test_a_message_reads_back() -> None:
    message = a_message(dispatch=3)

    assert decode_message(message.encode()) == message
    assert message.key == run_key()


def test_a_message_is_written_as_other_versions_of_this_code_read_it() -> None:
    assert a_message().encode() == (
        '{"v":1,"tenant":"acme","jobId":"report","runId":"20260524T120000000Z-uid00001",'
        '"dispatch":1,"dispatchedAt":"2026-05-24T12:00:00Z"}'
    )


@pytest.mark.parametrize(
    "change",
    [
        {"v": 0},
        {"v": "2"},
        {"tenant": ""},
        {"tenant": "a/b"},
        {"tenant": "a#b"},
        {"tenant": None},
        {"jobId": "a.b"},
        {"jobId": "report\n"},
        {"runId": "20260524T120000000Z-uid00001\n"},
        {"runId": "20261324T120000000Z-uid00001"},
        {"runId": "00000524T120000000Z-uid00001"},
        {"runId": "\u06620260524T120000000Z-uid00001"},
        {"dispatch": 0},
        {"dispatch": "many"},
        {"dispatch": 1.5},
        {"dispatchedAt": "2026-05-24T12:00:00"},
        {"dispatchedAt": 1e300},
    ],
)
def test_a_message_with_a_field_that_is_not_of_its_form_is_refused(
    change: dict[str, object],
) -> None:
    with pytest.raises(UndecodableError):
        decode_message(json.dumps(GOOD | change))


@pytest.mark.parametrize("body", ["", "null", "[]", "{", '{"v":NaN}', "\x00", "\ud800", "[" * 9999])
def test_a_body_that_is_not_a_message_is_rejected(body: str) -> None:
    with pytest.raises(UndecodableError):
        decode_message(body)


@given(st.text())
def test_any_text_is_a_message_or_refused(body: str) -> None:
    with suppress(UndecodableError):
        assert isinstance(decode_message(body), RunMessage)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "x"]), JSON))
def test_any_change_of_a_message_is_a_message_or_refused(change: dict[str, object]) -> None:
    with suppress(UndecodableError):
        message = decode_message(json.dumps(GOOD | change))
        assert message.key.execution_id
        assert message.key.scheduled_at.tzinfo is UTC
        assert decode_message(message.encode()) == message


@given(st.integers(0, 10**8 - 1), st.integers(0, 10**9 - 1))
def test_any_digits_are_an_instant_or_refused(day: int, time: int) -> None:
    with suppress(UndecodableError):
        message = decode_message(json.dumps(GOOD | {"runId": f"{day:08}T{time:09}Z-uid00001"}))
        assert message.key.scheduled_at.tzinfo is UTC


def test_an_unknown_field_is_ignored() -> None:
    assert decode_message(json.dumps(GOOD | {"extra": 1})) == a_message()


def test_a_later_version_has_its_own_error() -> None:
    with pytest.raises(UnknownVersionError, match="version 2"):
        decode_message(json.dumps(GOOD | {"v": 2, "dispatch": "odd"}))
