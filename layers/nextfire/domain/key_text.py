"""The text format of API keys, which detects a mistyped key without a store lookup.

The format is ``nfk_<tenant>.<key id>.<secret><checksum>``. Secret scanners match the prefix and the
shape (`SCANNER`). The checksum (six base62 digits: the CRC32 of the preceding text) distinguishes a
mistyped key from a wrong one. Older versions issued keys as ``nf.<tenant>.<key id>.<secret>``.
"""

from __future__ import annotations

import re
import zlib

from nextfire.dataclass import dataclass, field

PREFIX = "nfk_"
KEY_ID = re.compile(r"[0-9a-f]{16}")
KEY_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Tenant names that are valid in a key. An AWS account id is a valid name."""
SECRET_BYTES = 32
SCANNER = r"\bnfk_[A-Za-z0-9][A-Za-z0-9_-]{0,63}\.[0-9a-f]{16}\.[0-9A-Za-z]{49}\b"
"""Regular expression that finds keys in text, published in docs/operate/identity.md."""

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_SECRET_DIGITS = 43
_CHECKSUM_DIGITS = 6
_TEXT = re.compile(
    rf"nfk_({KEY_TENANT.pattern})\.({KEY_ID.pattern})\."
    rf"([0-9A-Za-z]{{{_SECRET_DIGITS}}})([0-9A-Za-z]{{{_CHECKSUM_DIGITS}}})"
)
_OLD_TEXT = re.compile(rf"nf\.({KEY_TENANT.pattern})\.({KEY_ID.pattern})\.([A-Za-z0-9_-]{{43}})")


@dataclass(frozen=True, slots=True)
class Presented:
    """A key presented by a caller: tenant, key id and secret."""

    tenant: str
    key_id: str
    secret: str = field(repr=False)


def write_key(tenant: str, key_id: str, secret: str) -> str:
    """Format a key as text. *secret*: the result of `secret_of`."""
    text = f"{PREFIX}{tenant}.{key_id}.{secret}"
    return text + _checksum(text)


def secret_of(random: bytes) -> str:
    """Encode *random*, which has `SECRET_BYTES` bytes, as 43 base62 digits."""
    return _base62(int.from_bytes(random), _SECRET_DIGITS)


def parse(text: str) -> Presented | None:
    """Parse a key. Returns None if *text* is not a key; `fault_of` returns the reason."""
    match = _TEXT.fullmatch(text)
    if match is not None:
        return Presented(match[1], match[2], match[3]) if _has_checksum(text) else None
    match = _OLD_TEXT.fullmatch(text)
    return Presented(match[1], match[2], match[3]) if match else None


def fault_of(text: str) -> str | None:
    """Why *text* is not a valid key, without quoting it; None if it is valid."""
    if parse(text) is not None:
        return None
    if _TEXT.fullmatch(text):
        return "its checksum is wrong: a character is missing, changed or out of place"
    if text.startswith(PREFIX):
        return "it is incomplete, or has characters that a key does not have"
    return f"a key begins with {PREFIX}"


def _has_checksum(text: str) -> bool:
    return text[-_CHECKSUM_DIGITS:] == _checksum(text[:-_CHECKSUM_DIGITS])


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode("ascii")), _CHECKSUM_DIGITS)


def _base62(number: int, digits: int) -> str:
    written = ""
    for _ in range(digits):
        number, digit = divmod(number, len(_DIGITS))
        written = _DIGITS[digit] + written
    return written
