"""Tables for a terminal."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from nextfire_cli.escaping import escaped
from nextfire_cli.render.text import indented

_LEAST_FOLDED = 12
"""Minimum width of a column that may wrap."""
_GAP = 2
"""Spaces between columns."""
_ANY = 10_000
"""More than the width of any table."""


class _Whole(Table):
    """Keeps all columns, `least` characters in all: Rich drops some in narrower terminals, which
    wrap long lines themselves.
    """

    least = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = max(options.max_width, self.least)
        return super().__rich_console__(console, options.update(max_width=width))


def table(
    headers: Sequence[str], rows: Iterable[Sequence[object]], folding: Sequence[int] = ()
) -> Table:
    """Plain columns, for people and for tools of the shell; only *folding* columns may wrap."""
    plain = _Whole(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    cells = [[_cell(value) for value in row] for row in rows]
    for number, header in enumerate(headers):
        wraps = number in folding
        lines = [header, *(line for row in cells for line in row[number].plain.split("\n"))]
        width = max(map(cell_len, lines))
        least = min(width, _LEAST_FOLDED) if wraps else width
        plain.least += least + _GAP
        plain.add_column(
            header,
            no_wrap=not wraps,
            overflow="fold",
            min_width=least,
        )
    for row in cells:
        plain.add_row(*row)
    return plain


@dataclass(frozen=True)
class TableWithReasons:
    """A table whose `rows` have one line each, and reasons below it over the whole width."""

    headers: Sequence[str]
    rows: Sequence[tuple[Sequence[object], Sequence[str | None]]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        cells = table(self.headers, (row for row, _ in self.rows))
        # Not cut: narrow terminals wrap long lines themselves.
        header, *lines = console.render_lines(cells, options.update(max_width=_ANY), pad=False)
        yield from (*header, Segment.line())
        for line, (_, reasons) in zip(lines, self.rows, strict=True):
            yield from (*line, Segment.line())
            for text in indented(reasons, options.max_width):
                yield from (Segment(text, console.get_style("dim")), Segment.line())


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
