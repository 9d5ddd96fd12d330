"""Masking: replaces the values of secrets with `***` in the output, results and errors of scripts.

Masking prevents accidental leaks: a program that prints its environment, a traceback that quotes a
connection string. It cannot stop a script that encrypts a value before printing it.

Masking detects these forms of a value: verbatim; line by line; escaped for JSON, Python, XML, a URL
or a shell; base64 at any offset. If a value is a JSON object, the strings in it are masked as well.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from nextfire.domain.json_text import compact_json

MASK = "***"
MIN_BYTES = 6
"""Shorter values are not masked: masking `true`, `5432` or `prod` would make logs unreadable."""
MIN_LINE_BYTES = 8
"""Shorter lines of a multi-line value are masked only as part of the whole value."""
PIECE_BYTES = 64
"""Maximum length of a search piece. A longer value is split into pieces of more than half of this
length. So at most 63 bytes of output are held back. Each position costs at most one binary search
over the pieces: about 20 comparisons of up to 64 bytes for a million pieces, however similar they
are."""

_MASK = MASK.encode()
_SHELL_SPECIAL = re.compile(r'([$`"\\])')


class Masker:
    """Masks the values that were added. Thread-safe."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._patterns: set[bytes] = set()
        self._table: _PatternTable | None = None
        self.add(*values)

    def add(self, *values: str) -> None:
        """Mask *values* from now on, also in open streams."""
        patterns = {
            piece
            for value in set(values) - self._values
            for secret in _secrets(value)
            for form in _forms(secret)
            for piece in _pieces(form)
        }
        with self._lock:
            self._values.update(values)
            if patterns - self._patterns:
                self._patterns |= patterns
                self._table = None

    def stream(self) -> MaskedStream:
        """Open a new output stream."""
        return MaskedStream(self)

    def text(self, text: str) -> str:
        """Return *text* with secrets masked."""
        if self.table() is None:
            return text
        data = text.encode(errors="surrogatepass")
        masked = self._mask(data)
        return text if masked == data else masked.decode(errors="replace")

    def cut(self, data: bytes) -> bytes:
        """Return *data*, the beginning of a longer text, with secrets masked, and without the
        beginning of one at its end.
        """
        return self.stream().feed(data)

    def json(self, data: bytes) -> bytes:
        """Return the JSON *data* with secrets masked. The result is valid JSON; *data* without
        secrets is returned unchanged.
        """
        if self._mask(data) == data:
            return data
        try:
            masked = compact_json(self._value(json.loads(data))).encode()
        except (ValueError, RecursionError):
            return compact_json(MASK).encode()
        # A secret can also span several strings: ["a","b"] contains the secret `a","b`.
        return masked if self._mask(masked) == masked else compact_json(MASK).encode()

    def table(self) -> _PatternTable | None:
        """The current search table; None if there is nothing to mask."""
        with self._lock:
            if self._table is None and self._patterns:
                self._table = _PatternTable(self._patterns)
            return self._table

    def _mask(self, data: bytes) -> bytes:
        stream = self.stream()
        return stream.feed(data) + stream.rest()

    def _value(self, value: object) -> object:
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.text(name): self._value(each) for name, each in value.items()}
            case list():
                return [self._value(each) for each in value]
            case bool() | None:
                return value
        number = json.dumps(value)
        masked = self.text(number)
        return value if masked == number else masked


class MaskedStream:
    """Masks a stream incrementally. The result does not depend on how the stream is split.

    Holds back only bytes that can be the beginning of a value, at most `PIECE_BYTES` - 1.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._until = -1  # end of the part of `_held` that is already masked; -1: none

    def feed(self, data: bytes) -> bytes:
        """Add *data*; return the masked output that is ready."""
        return self._advance(data, final=False)

    def rest(self) -> bytes:
        """Return the held-back output at the end of the stream."""
        return self._advance(b"", final=True)

    def _advance(self, data: bytes, *, final: bool) -> bytes:
        table = self._masker.table()
        if table is None:
            return data
        data = self._held + data
        end = len(data) if final else table.undecided(data)
        shown, until = [], self._until
        position = max(until, 0)
        for start, stop in table.found(data, end):
            if start > until:  # overlapping or adjacent values get one mask
                shown += [data[position:start], _MASK]
            position = until = max(until, stop)
        shown.append(data[position:end])
        self._held = data[end:]
        self._until = until - end if until >= end else -1
        return b"".join(shown)


class _PatternTable:
    """Patterns of at least `MIN_BYTES`, indexed by their first bytes.

    One regular expression finds the positions where any pattern may begin. A binary search among
    the patterns with these first bytes finds the match.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        by_head: dict[bytes, list[bytes]] = {}
        for pattern in patterns:
            by_head.setdefault(pattern[:MIN_BYTES], []).append(pattern)
        self._by_head = {head: _Branch(each) for head, each in by_head.items()}
        self._longest = max((each.longest for each in self._by_head.values()), default=0)
        self._short = {head[:n] for head in by_head for n in range(1, MIN_BYTES)}
        self._search = re.compile(_heads(by_head), re.DOTALL).search

    def found(self, data: bytes, end: int) -> Iterator[tuple[int, int]]:
        """The matches that begin before *end*; at each position the longest one."""
        at = self._search(data)
        while at is not None and (start := at.start()) < end:
            branch = self._by_head.get(at[0])
            if branch is not None:
                length = branch.match(data[start : start + branch.longest])
                if length:
                    yield start, start + length
            at = self._search(data, start + 1)

    def undecided(self, data: bytes) -> int:
        """The first position where the rest of *data* is a proper prefix of a pattern."""
        whole = len(data)
        whole_head = max(whole - MIN_BYTES + 1, 0)
        for start in range(max(whole - self._longest + 1, 0), whole_head):
            branch = self._by_head.get(data[start : start + MIN_BYTES])
            if branch is not None and branch.continues(data[start:]):
                return start
        for start in range(whole_head, whole):
            if data[start:] in self._short:
                return start
        return whole


class _Branch:
    """Patterns with the same first bytes, for binary search.

    The texts with a given prefix form an interval in byte order. The intervals of two patterns are
    nested or disjoint. So their borders divide all texts into sections, and each section has one
    longest pattern.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._patterns = sorted(patterns)
        self.longest = max(map(len, self._patterns))
        self._borders: list[bytes] = []
        self._lengths: list[int] = []  # of the longest pattern in the section after each border
        around: list[bytes] = []  # the patterns that are a prefix of the current one
        for pattern in self._patterns:
            while around and not pattern.startswith(around[-1]):
                self._leave(around)
            around.append(pattern)
            self._add(pattern, len(pattern))
        while around:
            self._leave(around)

    def match(self, data: bytes) -> int:
        """Length of the longest pattern that is a prefix of *data*, or 0."""
        section = bisect_right(self._borders, data)
        return self._lengths[section - 1] if section else 0

    def continues(self, data: bytes) -> bool:
        """Whether *data* is a proper prefix of a pattern."""
        after = bisect_right(self._patterns, data)
        return after < len(self._patterns) and self._patterns[after].startswith(data)

    def _leave(self, around: list[bytes]) -> None:
        end = around.pop().rstrip(b"\xff")
        if end:  # otherwise its interval is unbounded
            self._add(end[:-1] + bytes([end[-1] + 1]), len(around[-1]) if around else 0)

    def _add(self, border: bytes, length: int) -> None:
        """Add a border. The last of equal borders applies: `bisect_right` skips the others."""
        self._borders.append(border)
        self._lengths.append(length)


def _heads(heads: Iterable[bytes]) -> bytes:
    """A regular expression that matches *heads*, and possibly more: for each first byte, the sets
    of possible following bytes. So its size is bounded.
    """
    columns: dict[int, list[set[int]]] = {}
    for head in heads:
        sets = columns.setdefault(head[0], [set() for _ in head[1:]])
        for column, byte in zip(sets, head[1:], strict=True):
            column.add(byte)
    return b"|".join(
        re.escape(bytes([first])) + b"".join(map(_one_of, sets))
        for first, sets in sorted(columns.items())
    )


def _one_of(values: Iterable[int]) -> bytes:
    return b"[" + b"".join(b"\\x%02x" % value for value in sorted(values)) + b"]"


def _secrets(value: str) -> Iterator[str]:
    """The secrets in *value*: the whole value and, if it is a JSON object, the strings in it."""
    core = value.strip()  # surrounding whitespace is not secret and is often stripped
    if len(core.encode(errors="surrogatepass")) < MIN_BYTES:
        return
    yield core
    if core.startswith("{"):
        try:
            waiting = [json.loads(core)]
        except (ValueError, RecursionError):
            return
        while waiting:
            match waiting.pop():
                case dict() as members:
                    waiting += members.values()
                case list() as members:
                    waiting += members
                case str() as member if len(member.strip().encode(errors="replace")) >= MIN_BYTES:
                    yield member.strip()


def _forms(secret: str) -> Iterator[bytes]:
    """The encodings of *secret* to search for."""
    from html import escape  # noqa: PLC0415 — with a table of entities, which the API never needs

    raw = secret.encode(errors="surrogatepass")
    yield raw
    if "\n" in secret or "\r" in secret:
        yield from (line for line in map(bytes.strip, raw.splitlines()) if _is_long(line))
    for escaped in {
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        repr("'\"" + secret)[4:-1],  # as in a string that contains both kinds of quotes
        repr(raw)[2:-1],
        escape(secret),
        escape(secret, quote=False),
        quote(raw),
        quote(raw, safe=""),
        quote_plus(raw),
        secret.replace("'", "'\\''"),
        secret.replace("'", "'\"'\"'"),
        _SHELL_SPECIAL.sub(r"\\\1", secret),
    }:
        yield escaped.encode(errors="surrogatepass")
    for offset in range(3):
        # Omit characters that also encode bits of the neighboring bytes.
        first, last = -(-8 * offset // 6), 8 * (offset + len(raw)) // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(b"\0" * offset + raw)[first:last]


def _is_long(line: bytes) -> bool:
    return len(line) >= MIN_LINE_BYTES


def _pieces(form: bytes) -> Iterator[bytes]:
    """Split *form* into pieces of nearly equal length, each of at most `PIECE_BYTES`."""
    count = -(-len(form) // PIECE_BYTES)
    for n in range(count):
        yield form[n * len(form) // count : (n + 1) * len(form) // count]
