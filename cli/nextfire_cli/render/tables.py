"""Tables for a terminal."""

from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from nextfire_cli.escaping import escaped

_LEAST_FOLDED = 12
"""Minimum width of a column that may wrap."""


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], folding: Sequence[int] = ()
) -> Table:
    """Plain columns, for people and for tools of the shell; only *folding* columns may wrap."""
    plain = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    cells = [[_cell(value) for value in row] for row in rows]
    for number, header in enumerate(headers):
        wraps = number in folding
        lines = [header, *(line for row in cells for line in row[number].plain.split("\n"))]
        width = max(map(cell_len, lines))
        plain.add_column(
            header,
            no_wrap=not wraps,
            overflow="fold",
            min_width=min(width, _LEAST_FOLDED) if wraps else width,
        )
    for row in cells:
        plain.add_row(*row)
    return plain


def fields(*pairs: tuple[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, value in pairs:
        if value is not None and value != "":
            grid.add_row(escaped(label), _cell(value))
    return grid


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text(escaped(value))
