"""The last line of stderr, which the reason of a failed attempt quotes."""

import pytest

from nextfire.domain.last_line import MAX_LAST_LINE, explained, last_line

TRACEBACK = """Traceback (most recent call last):
  File "boom.py", line 3, in <module>
ValueError: no rows in ledger.csv
"""


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (TRACEBACK, "ValueError: no rows in ledger.csv"),
        ("disk full", "disk full"),
        ("first\nlast\n\n  \n", "last"),
        ("\x1b[2J\tred\x00\x9b alert\r\n", "[2J red alert"),
        ("\x1b\x07\n", ""),
        ("", ""),
        ("größer ✓", "größer ✓"),
        ("x" * 201, "x" * 199 + "…"),
        ("x" * 200, "x" * 200),
    ],
)
def test_the_last_line_that_says_something(stderr: str, expected: str) -> None:
    assert last_line(stderr) == expected
    assert len(last_line(stderr)) <= MAX_LAST_LINE


def test_a_module_that_was_not_found_is_explained() -> None:
    found = explained("ModuleNotFoundError: No module named 'boto3'")

    assert found.startswith("ModuleNotFoundError: No module named 'boto3'. A script has the ")
    assert "nor a folder that its user may not enter" in found
    assert explained("ValueError: no rows") == "ValueError: no rows"
