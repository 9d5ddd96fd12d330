"""Masking does a bounded amount of work per byte, whatever the patterns."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nextfire.domain.masking import MIN_BYTES, PIECE_BYTES, Masker, _PatternTable

# The table of patterns

patterns = st.lists(
    st.builds(
        bytes.__add__,
        st.sampled_from([b"\xff" * MIN_BYTES, b"a" * MIN_BYTES, b"aa\xff\xff\xff\xff"]),
        st.lists(st.sampled_from(b"\0ab\xff"), max_size=6).map(bytes),
    ),
    min_size=1,
    max_size=30,
)


@given(
    patterns=patterns,
    output=st.lists(st.sampled_from(b"\0aaaab\xff\xff\xff"), max_size=30).map(bytes),
    data=st.data(),
)
def test_patterns_with_the_same_first_bytes(
    patterns: list[bytes], output: bytes, data: st.DataObject
) -> None:
    """Compared with a slow, simple model, with patterns that are prefixes of each other."""
    output += data.draw(st.sampled_from(patterns)) + data.draw(st.sampled_from(patterns))
    output = output[: len(output) - data.draw(st.integers(0, MIN_BYTES))]
    table = _PatternTable(patterns)

    longest = [
        (start, start + max(map(len, here)))
        for start in range(len(output))
        if (here := [each for each in patterns if output.startswith(each, start)])
    ]
    begun = [
        start
        for start in range(len(output))
        for tail in [output[start:]]
        if any(each.startswith(tail) and each != tail for each in patterns)
    ]

    assert list(table.found(output, len(output))) == longest
    assert table.undecided(output) == min(begun, default=len(output))


class Counting(bytes):
    """Counts the comparisons, lookups and slices on it, and the longest operand."""

    work: ClassVar = 0
    longest: ClassVar = 0

    @classmethod
    def note(cls, size: int) -> None:
        cls.work += 1
        cls.longest = max(cls.longest, size)

    @classmethod
    def reset(cls) -> None:
        cls.work = cls.longest = 0

    def startswith(self, *arguments: Any) -> bool:
        self.note(len(arguments[0]))
        return super().startswith(*arguments)

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, int):
            return part
        self.note(len(part))
        return Counting(part)

    def __lt__(self, other: bytes) -> bool:
        self.note(len(self))
        return super().__lt__(other)

    def __hash__(self) -> int:
        self.note(len(self))
        return super().__hash__()


def json_secret(texts: list[str]) -> str:
    return json.dumps(dict(enumerate(texts)))


MOST_WORK = 24
"""Per position: a binary search among at most 5000 patterns of these secrets."""


@pytest.mark.parametrize(
    "secret",
    [
        "a" * 5000 + "b",
        json_secret(["a" * 60 + f"{n:03}" for n in range(60)]),
        json_secret(["a" * 58 + f"{n:05}" for n in range(600)]),
        json_secret(["a" * 6 + f"{n:05}" for n in range(600)]),
        json_secret(["a" * n + end for n in range(6, 64) for end in "0bz"]),
    ],
    ids=["long", "60 texts", "600 texts", "600 texts, short head", "all lengths"],
)
@pytest.mark.parametrize(
    "output",
    [b"a" * 2000, b"aaaaaa~" * 300, b"a" * 62 + b"~"],
    ids=["letters", "heads", "miss at the end"],
)
def test_near_misses_cost_a_bounded_amount_of_work_per_byte(secret: str, output: bytes) -> None:
    """Counts operations on the output; the bound holds whatever prefixes the secrets share."""
    table = Masker([secret]).table()
    assert table is not None

    Counting.reset()
    for _ in table.found(Counting(output), len(output)):
        pass
    assert Counting.work <= MOST_WORK * len(output)
    assert Counting.longest <= PIECE_BYTES

    Counting.reset()
    table.undecided(Counting(output))
    assert Counting.work <= MOST_WORK * PIECE_BYTES
    assert Counting.longest <= PIECE_BYTES
