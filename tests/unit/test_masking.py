"""Masking: no secret is recorded, whatever the secrets, the output and the way it is split."""

from __future__ import annotations

import html
import json
import shlex
from base64 import b64encode, urlsafe_b64encode
from copy import copy
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.masking import MASK, MIN_BYTES, PIECE_BYTES, Masker

PEM = """-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj
MzEfYyjiWA4R4/M2bS1GB4t7NXp98C3SC6dVMvDuictGeurT8jNbvJZHtCSuYEvu
NMoSfm76oqFvAp8Gy0iz5sxjZmSnXyCdPEovGhLa0VzMaQ8s+CLOyS56YyCFGeJZ
qgtzJ6GR3eqoYSW9b9UMvkBpZODSctWSNGj3P7jRFDO5VoTwCQAWbFnOjDfH5Ulg
-----END PRIVATE KEY-----
"""


def masked(masker: Masker, pieces: list[bytes]) -> bytes:
    stream = masker.stream()
    return b"".join([*map(stream.feed, pieces), stream.rest()])


# Few letters, so that values overlap, repeat and share prefixes. No asterisk: masking can produce
# `a***b`, which reveals nothing.
LETTERS = "ab\n é"
secrets = st.text(LETTERS, min_size=0, max_size=150)
pieces = st.lists(
    st.one_of(
        st.text(LETTERS, max_size=20).map(str.encode),
        st.binary(max_size=6).map(lambda data: data.replace(b"*", b"")),
    ),
    max_size=12,
)


def is_maskable(secret: str) -> bool:
    return len(secret.strip().encode()) >= MIN_BYTES


@given(values=st.lists(secrets, max_size=5), output=pieces, data=st.data())
def test_no_secret_is_recorded_however_output_is_cut(
    values: list[str], output: list[bytes], data: st.DataObject
) -> None:
    for value in values:
        output.insert(data.draw(st.integers(0, len(output))), value.encode())
    whole = b"".join(output)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    cut = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    masker = Masker(values)

    recorded = masked(masker, cut)

    assert recorded == masked(masker, [whole])
    for value in filter(is_maskable, values):
        assert value.strip().encode() not in recorded


@given(values=st.lists(secrets, max_size=3), output=pieces)
def test_output_outside_secrets_is_recorded_verbatim(
    values: list[str], output: list[bytes]
) -> None:
    """Compared with a slow, simple model: a byte is masked if an occurrence covers it."""
    whole = b"".join(output) + b"".join(value.encode() for value in values)
    masker = Masker(values)
    covered = [False] * (len(whole) + PIECE_BYTES)
    for pattern in masker._patterns:  # noqa: SLF001 — the patterns, without the matching code
        for start in range(len(whole)):
            if whole.startswith(pattern, start):
                covered[start : start + len(pattern)] = [True] * len(pattern)
    expected, inside = b"", False
    for position, hidden in enumerate(covered[: len(whole)]):
        if hidden and not inside:
            expected += MASK.encode()
        if not hidden:
            expected += whole[position : position + 1]
        inside = hidden

    assert masked(masker, [whole]) == expected


@given(values=st.lists(secrets, max_size=4), output=pieces)
def test_never_more_than_the_beginning_of_a_value_is_held_back(
    values: list[str], output: list[bytes]
) -> None:
    masker = Masker(values)
    stream = masker.stream()
    for piece in [*output, *map(str.encode, values)]:
        for n in range(len(piece)):
            stream.feed(piece[n : n + 1])
            held = copy(stream).rest()
            assert len(held) < PIECE_BYTES + len(MASK)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('ab"\\\n', max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=9), inner),
    max_leaves=8,
)


@given(value=JSON, secret=st.text('ab"\\,\n', min_size=MIN_BYTES, max_size=8).filter(is_maskable))
def test_a_masked_result_is_json_without_the_secret(value: object, secret: str) -> None:
    data = json.dumps([value, secret, {secret: 1}], separators=(",", ":")).encode()

    result = Masker([secret]).json(data)

    def texts(each: object) -> list[str]:
        if isinstance(each, dict):
            return [*each, *(text for inner in each.values() for text in texts(inner))]
        if isinstance(each, list):
            return [text for inner in each for text in texts(inner)]
        return [str(each)]

    assert all(secret.strip() not in text for text in texts(json.loads(result)))
    assert secret.strip().encode() not in result


def test_output_without_secrets_is_passed_on_at_once() -> None:
    stream = Masker(["correct horse"]).stream()

    assert stream.feed(b"loading c") == b"loading "
    assert stream.feed(b"at.csv\n") == b"cat.csv\n"
    assert stream.feed(b"99 %") == b"99 %"


def test_a_masker_without_secrets_changes_nothing() -> None:
    data = b"\xff\x00***"
    masker = Masker(["", "true", "  0 ", "12345"])

    assert masker.stream().feed(data) is data
    assert masker.text("true 12345") == "true 12345"


@pytest.mark.parametrize(
    ("values", "output", "recorded"),
    [
        (["abcdef", "defghi"], "x abcdefghi y", "x *** y"),
        (["abcdef", "xabcdefx"], "xabcdefx abcdef", "*** ***"),
        (["abcdefgh"], "abcdef", "abcdef"),
        (["abcdefg", "abcdefgh"], "abcdefx abcdefgh", "abcdefx ***"),
        (["secret\n"], "secret", "***"),
        (["hunter22"], "hunter22hunter22", "***"),
        ([PEM], PEM.replace("\n", "\r\n    "), "***\r\n    " * 6),
        ([PEM], json.dumps({"key": PEM}), '{"key": "***\\n"}'),
        (['{"user": "admin1", "n": [{"x": "pass word"}]}'], "pass word admin1", "*** ***"),
    ],
)
def test_values_that_overlap_or_have_lines(values: list[str], output: str, recorded: str) -> None:
    assert Masker(values).text(output) == recorded


SPECIAL = "p@ss 'w\"o\\r$d <ü>\t&x"


@pytest.mark.parametrize(
    "form",
    [
        json.dumps(SPECIAL),
        json.dumps(SPECIAL, ensure_ascii=False),
        repr(SPECIAL),
        repr({"A": "'", "B": SPECIAL}),
        repr(SPECIAL.encode()),
        html.escape(SPECIAL),
        quote(SPECIAL),
        quote(SPECIAL, safe=""),
        quote_plus(SPECIAL),
        shlex.quote(SPECIAL),
        b64encode(SPECIAL.encode()).decode(),
        urlsafe_b64encode(b"x" + SPECIAL.encode()).decode(),
        b64encode(b"user:" + SPECIAL.encode() + b" and more").decode(),
    ],
)
def test_usual_spellings_of_a_value_are_masked(form: str) -> None:
    shown = Masker([SPECIAL]).text(f"value: {form}!")

    assert MASK in shown
    assert len(shown) <= len(f"value: {form}!") - len(SPECIAL)


@pytest.mark.parametrize("length", [64, 65, 1000, 50_000])
def test_little_of_a_long_value_is_held_back(length: int) -> None:
    value = "".join(chr(97 + (n * n + n // 7) % 26) for n in range(length))
    stream = Masker([value]).stream()

    recorded = stream.feed(b"x " + value[: length - 1].encode())

    assert recorded.startswith(b"x ***" if length > PIECE_BYTES else b"x ")
    assert len(recorded + stream.rest()) < PIECE_BYTES + 10
    assert masked(Masker([value]), [b"x " + value.encode() + b" y"]) == b"x *** y"


def test_a_value_that_is_added_later_is_masked_in_a_stream_that_has_begun() -> None:
    masker = Masker()
    stream = masker.stream()
    before = stream.feed(b"first-token ")

    masker.add("second-token")

    assert before + stream.feed(b"first-token second-token") == b"first-token first-token ***"


@pytest.mark.parametrize(
    ("result", "recorded"),
    [
        ({"n": 12345678}, {"n": "***"}),
        ({"12345678": [1, None, True, 0.5]}, {"***": [1, None, True, 0.5]}),
        ("a 12345678 b", "a *** b"),
        (b"[" * 90_000 + b'"12345678"' + b"]" * 90_000, MASK),
    ],
)
def test_results_stay_json(result: object, recorded: object) -> None:
    data = result if isinstance(result, bytes) else json.dumps(result).encode()

    assert json.loads(Masker(["12345678"]).json(data)) == recorded


def test_a_value_spread_over_several_texts_of_a_result_is_masked() -> None:
    assert Masker(['abc","def']).json(b'["abc","def"]') == b'"***"'


def test_a_result_without_secrets_is_kept_to_the_byte() -> None:
    data = b'{ "a" : 1.0 }'

    assert Masker(["hunter22"]).json(data) is data
