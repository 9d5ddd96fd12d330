"""JSON in the form in which it is stored, sent and measured: without spaces, as UTF-8."""

from __future__ import annotations

import json


def compact_json(value: object) -> str:
    """Return *value* as JSON. Texts keep their characters, lone surrogates included."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_size(value: object) -> int:
    """Return the number of bytes of *value* as JSON."""
    return len(compact_json(value).encode())
