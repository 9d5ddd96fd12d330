"""JSON in the form in which it is stored, sent and measured: without spaces, as UTF-8; and what
JSON texts must not contain.
"""

from __future__ import annotations

import json
from typing import Never


def compact_json(value: object) -> str:
    """Return *value* as JSON. Texts keep their characters, lone surrogates included."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def json_size(value: object) -> int:
    """Return the number of bytes of *value* as JSON."""
    return len(compact_json(value).encode())


def reject_constant(name: str) -> Never:
    """For `json.loads(parse_constant=…)`: NaN and infinities are not JSON."""
    raise ValueError(f"{name} is not a JSON value")
