"""The last line of stderr, which the reason of a failed attempt quotes."""

import pytest

from nextfire.domain.last_line import MAX_LAST_LINE, MAX_MESSAGE, explained, last_line

TRACEBACK = """Traceback (most recent call last):
  File "boom.py", line 3, in <module>
ValueError: no rows in ledger.csv
"""


FRAMES = TRACEBACK.removesuffix("ValueError: no rows in ledger.csv\n")
VALIDATION = "pydantic_core._pydantic_core.ValidationError: 1 validation error for Order"
PROBLEM = "Input should be a valid integer [type=int_type, input_value='x', input_type=str]"
MORE = "For further information visit https://errors.pydantic.dev/2.11/v/int_type"
AT_FIELD = f"\nqty\n  {PROBLEM}\n    {MORE}"
SHOWN = f"{VALIDATION} qty {PROBLEM} {MORE}"
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "group.py", line 1, in <module>
  |     raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: a
    +---------------- ... ----------------
    | and 1 more exception
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("stderr", "expected"),
    [
        (FRAMES + VALIDATION + AT_FIELD, SHOWN),
        (FRAMES + VALIDATION + AT_FIELD * 9, f"{SHOWN[:225]}… {MORE}"),
        (f"{TRACEBACK}first\n\n  second\n", "ValueError: no rows in ledger.csv first second"),
        (TRACEBACK + "later\n" * 100, "later"),
        (f"{TRACEBACK}{'y' * 400}", f"ValueError: no rows in ledger.csv {'y' * 199}…"),
        (f"{TRACEBACK}\nDuring handling:\n\n{TRACEBACK}", "ValueError: no rows in ledger.csv"),
        (GROUP, "ExceptionGroup: two (2 sub-exceptions) ValueError: a and 1 more exception"),
        (FRAMES, 'File "boom.py", line 3, in <module>'),
    ],
)
def test_a_message_of_several_lines_is_kept(stderr: str, expected: str) -> None:
    assert last_line(stderr) == expected
    assert len(last_line(stderr)) <= MAX_MESSAGE


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
        (
            "12:00:03 | ERROR    | app:main:12 - no disk +",
            "12:00:03 | ERROR | app:main:12 - no disk +",
        ),
        ("x" + " " * 500_000 + "y", "x y"),
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
