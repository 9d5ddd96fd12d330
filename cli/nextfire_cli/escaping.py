"""Text that a terminal may show."""

import re

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that move the cursor, end a line or change the text direction, and surrogates."""


def escaped(value: object, *, keep: str = "") -> str:
    """Return *value* as text that is harmless to a terminal: control characters are escaped as in
    Python literals, except those in *keep*.
    """

    def escape(found: re.Match[str]) -> str:
        return found[0] if found[0] in keep else found[0].encode("unicode_escape").decode()

    return _CONTROLS.sub(escape, str(value))


def escaped_json(text: str) -> str:
    """Return the JSON *text* with the control characters in its strings escaped. JSON itself allows
    some of them, which `json.dumps` leaves as they are.
    """
    return _CONTROLS.sub(lambda f: f[0] if f[0] == "\n" else f"\\u{ord(f[0]):04x}", text)
