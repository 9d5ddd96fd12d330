"""Replaces the values of secrets by `***` in what a script prints, returns or fails with.

Masking protects from accidents: a program that prints its environment, a traceback that quotes a
connection string. It cannot stop a script that encrypts a value before printing it.

A value is found in these forms: verbatim; line by line; escaped for JSON, Python, XML, a URL or a
shell; in base64, at any offset. The texts in a value that is a JSON object are masked as well.
"""

from __future__ import annotations

import html
import json
import re
import threading
from base64 import b64encode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

MASK = "***"
MIN_BYTES = 6
"""Shorter values are not masked: `true`, `5432` or `prod` would make holes in every log."""
MIN_LINE_BYTES = 8
"""Shorter lines of a value of several lines are masked only as part of the whole value."""
PIECE_BYTES = 64
"""Longer values are searched for in pieces of at most this, and more than half of it. So at most 63
bytes of output are ever held back. Each position costs at most one binary search over the pieces:
about 20 comparisons of up to 64 bytes among a million pieces, however similar the pieces are."""

_MASK = MASK.encode()
_SHELL_SPECIAL = re.compile(r'([$`"\\])')


class Masker:
    """Masks the values that were added. Threads may add values while others mask."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()
        self._values: set[str] = set()
        self._patterns: set[bytes] = set()
        self._table: _Table | None = None
        self.add(*values)

    def add(self, *values: str) -> None:
        """Mask *values* from now on, in streams that have begun as well."""
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
        """A new stream of output to mask."""
        return MaskedStream(self)

    def text(self, text: str) -> str:
        """*text*, masked."""
        if self.table() is None:
            return text
        data = text.encode(errors="surrogatepass")
        masked = self._mask(data)
        return text if masked == data else masked.decode(errors="replace")

    def json(self, data: bytes) -> bytes:
        """The JSON *data*, masked: JSON again, and unchanged if it holds no secret."""
        if self._mask(data) == data:
            return data
        try:
            masked = _compact(self._value(json.loads(data)))
        except (ValueError, RecursionError):
            return _compact(MASK)
        # A value may also be spread over several texts: ["a","b"] holds the secret `a","b`.
        return masked if self._mask(masked) == masked else _compact(MASK)

    def table(self) -> _Table | None:
        """What to search for at present; None: nothing."""
        with self._lock:
            if self._table is None and self._patterns:
                self._table = _Table(self._patterns)
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
    """Masks a stream piece by piece, with the same outcome however it is cut into pieces.

    Holds back only what can be the beginning of a value, at most `PIECE_BYTES` - 1 bytes.
    """

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = b""
        self._until = -1  # where in `_held` what is masked already ends; -1: nothing is

    def feed(self, data: bytes) -> bytes:
        """What can be recorded after *data* has come."""
        return self._advance(data, final=False)

    def rest(self) -> bytes:
        """What was held back, after the last piece."""
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
            if start > until:  # values that overlap or touch get one mask
                shown += [data[position:start], _MASK]
            position = until = max(until, stop)
        shown.append(data[position:end])
        self._held = data[end:]
        self._until = until - end if until >= end else -1
        return b"".join(shown)


class _Table:
    """Patterns of at least `MIN_BYTES`, by their first bytes.

    One regular expression finds positions where a pattern may begin, however many patterns there
    are. A binary search among the patterns with these first bytes decides.
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
        """Where the patterns are that begin before *end*: of each position the longest."""
        at = self._search(data)
        while at is not None and (start := at.start()) < end:
            branch = self._by_head.get(at[0])
            if branch is not None:
                length = branch.match(data[start : start + branch.longest])
                if length:
                    yield start, start + length
            at = self._search(data, start + 1)

    def undecided(self, data: bytes) -> int:
        """The first position from which on *data* is the beginning of a longer pattern."""
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

    The texts that begin with a pattern form an interval in the order of bytes. Intervals of two
    patterns are nested or disjoint, so their borders divide all texts into sections, and each
    section has one longest pattern.
    """

    def __init__(self, patterns: Iterable[bytes]) -> None:
        self._patterns = sorted(patterns)
        self.longest = max(map(len, self._patterns))
        self._borders: list[bytes] = []
        self._lengths: list[int] = []  # of the longest pattern in the section after each border
        around: list[bytes] = []  # the patterns that the current one begins with
        for pattern in self._patterns:
            while around and not pattern.startswith(around[-1]):
                self._leave(around)
            around.append(pattern)
            self._add(pattern, len(pattern))
        while around:
            self._leave(around)

    def match(self, data: bytes) -> int:
        """The length of the longest pattern that *data* begins with, or 0."""
        section = bisect_right(self._borders, data)
        return self._lengths[section - 1] if section else 0

    def continues(self, data: bytes) -> bool:
        """Whether a pattern is longer than *data* and begins with it."""
        after = bisect_right(self._patterns, data)
        return after < len(self._patterns) and self._patterns[after].startswith(data)

    def _leave(self, around: list[bytes]) -> None:
        end = around.pop().rstrip(b"\xff")
        if end:  # else its interval has no end
            self._add(end[:-1] + bytes([end[-1] + 1]), len(around[-1]) if around else 0)

    def _add(self, border: bytes, length: int) -> None:
        """Add a border. Of equal ones the last counts: `bisect_right` skips the others."""
        self._borders.append(border)
        self._lengths.append(length)


def _heads(heads: Iterable[bytes]) -> bytes:
    """An expression that matches *heads*, and perhaps others: for each first byte the sets of the
    bytes that follow, so that its size is bounded.
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
    """What is secret in *value*: all of it, and the texts in it if it is a JSON object."""
    core = value.strip()  # blank space around a value is not secret, and gets lost easily
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
    """The forms in which *secret* is looked for."""
    raw = secret.encode(errors="surrogatepass")
    yield raw
    if "\n" in secret or "\r" in secret:
        yield from (line for line in map(bytes.strip, raw.splitlines()) if _is_long(line))
    for escaped in {
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        repr("'\"" + secret)[4:-1],  # as in a text that holds both kinds of quotes
        repr(raw)[2:-1],
        html.escape(secret),
        html.escape(secret, quote=False),
        quote(raw),
        quote(raw, safe=""),
        quote_plus(raw),
        secret.replace("'", "'\\''"),
        secret.replace("'", "'\"'\"'"),
        _SHELL_SPECIAL.sub(r"\\\1", secret),
    }:
        yield escaped.encode(errors="surrogatepass")
    for offset in range(3):
        # Characters that hold bits of what is before or after it are left out.
        first, last = -(-8 * offset // 6), 8 * (offset + len(raw)) // 6
        for encode in (b64encode, urlsafe_b64encode):
            yield encode(b"\0" * offset + raw)[first:last]


def _is_long(line: bytes) -> bool:
    return len(line) >= MIN_LINE_BYTES


def _pieces(form: bytes) -> Iterator[bytes]:
    """*form* in pieces of nearly the same length, each of at most `PIECE_BYTES`."""
    count = -(-len(form) // PIECE_BYTES)
    for n in range(count):
        yield form[n * len(form) // count : (n + 1) * len(form) // count]


def _compact(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
