"""Prints a benchmark's result: a table for people, and one JSON object as the last line."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

T = TypeVar("T")

_BEGAN = time.monotonic()
_stderr = Console(stderr=True, highlight=False)


def tell(text: str) -> None:
    """Report progress on stderr."""
    _stderr.print(f"{time.monotonic() - _BEGAN:7.1f} s  {text}", markup=False)


def progress(things: Iterable[T], description: str, total: float | None = None) -> Iterable[T]:
    """*things*, with a progress bar on stderr if it is a terminal."""
    tell(description)
    return track(things, description, total=total, console=_stderr, disable=not _stderr.is_terminal)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table. `met`: whether the figure is within its bound; None without a bound."""

    what: str
    measured: str
    bound: str = ""
    met: bool | None = None


@dataclass(slots=True)
class Result:
    """The result of a benchmark. `values` is the JSON object; `rows` is the table for people."""

    values: dict[str, object] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """How it was measured, and any problems."""

    def add(
        self,
        key: str,
        what: str,
        value: float,
        *,
        most: float | None = None,
        least: float | None = None,
        unit: str = "",
    ) -> None:
        """Add a figure named *key*; *most* or *least* is its bound."""
        value = round(value, 6)
        self.values[key] = value
        text = f"{value:,.4g} {unit}" if abs(value) < 1000 else f"{value:,.0f} {unit}"  # noqa: PLR2004
        bound, met = "", None
        if most is not None:
            bound, met = f"≤ {most:g} {unit}".rstrip(), value <= most
        elif least is not None:
            bound, met = f"≥ {least:g} {unit}".rstrip(), value >= least
        self.rows.append(Row(what, text.rstrip(), bound, met))

    def say(self, what: str, measured: str) -> None:
        """Add a line to the table only."""
        self.rows.append(Row(what, measured))


def show(name: str, result: Result) -> None:
    """Print *result*; the JSON object is the last line of stdout."""
    ran_on = machine()
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120
    table = Table(title=name, title_justify="left")
    for column in ("what", "measured", "bound", ""):
        table.add_column(column, justify="right" if column == "measured" else "left")
    verdicts: Mapping[bool | None, str] = {True: "met", False: "[bold red]MISSED", None: ""}
    for row in result.rows:
        table.add_row(row.what, row.measured, row.bound, verdicts[row.met])
    console.print(table)
    for note in result.notes:
        console.print(note, markup=False)
    console.print(f"Ran on: {ran_on}", markup=False)
    sys.stdout.write(json.dumps({**result.values, "ran_on": ran_on}) + "\n")


def machine() -> str:
    """The CPU model and count, the versions, and the date."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].partition(":")[2].strip() if models else cpu
    return (
        f"{os.cpu_count()} CPUs {cpu}, Python {platform.python_version()}, "
        f"MiniStack {version('ministack')}, {time.strftime('%Y-%m-%d', time.gmtime())}"
    )
