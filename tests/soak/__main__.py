"""A soak with real kills on a local stack; see --help."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from rich.console import Console
from rich.table import Table

from tests.soak.accounting import Found, Lateness, Row, Wrong
from tests.soak.drive import Soak, Wanted
from tests.soak.stack import running

_BEGAN = time.monotonic()
_ANOMALIES_SHOWN = 50
_HELP = """
Runs hundreds of jobs on a local stack of its own (MiniStack, the deployed CDK app, three workers),
kills its processes at random moments, restarts it, and then accounts for every occurrence from the
records that the API shows and from files that the scripts leave, against a list of its own of what
should have run.

Killed (SIGKILL): workers, which are started again within a second; the emulator's processes of
watcher, Lambda executor, API and auditor, which are invoked again by their rules, queues and
callers. A Lambda executor that is killed just when it gets a message leaves that hidden for the
pool's 15 minutes: then the end waits for it. Do not change the project meanwhile: a restart would
deploy the change. Not killed: the emulator itself. It keeps its state (tables, queues, files) only
over a clean stop, so a restart stops it cleanly; a crash of the database or the queue is AWS's to
survive, and is not shown here.

The last line is one JSON object. Exit code 0 only if nothing was lost, nothing was done twice, no
attempt was repeated without a kill, no other anomaly was found, and the system came to rest.
Attempts that were repeated because their worker was killed are counted as `repeated`: at least once
is what is promised. What was skipped for lateness, failed, died or was cancelled must have a cause:
the payload asks for it, or something was killed or stopped at most 3 minutes before, or was busy.
A run that began over a minute late without such a cause is listed, and counted as
`late_without_cause`, which does not change the exit code.
"""


def main(arguments: Sequence[str]) -> int:
    """Soak, and tell. Returns the exit code."""
    wanted, keep = _read(arguments)
    began = time.monotonic()
    with running(_tell, keep=keep) as stack:
        soak = Soak(stack, wanted, _tell)
        found = soak.run()
        _show(soak, found)
        summary = _summary(soak, found, minutes=(time.monotonic() - began) / 60)
    sys.stdout.write(f"{verdict(summary)}\n{json.dumps(summary)}\n")
    return exit_code(summary)


_WRONG = ("lost", "double_effects", "others", "repeated_without_kill")


def exit_code(summary: Mapping[str, object]) -> int:
    """0 if nothing in *summary* is wrong. Lateness is told, and is no wrong."""
    return int(not summary["at_rest"] or any(summary[name] for name in _WRONG))


def verdict(summary: Mapping[str, object]) -> str:
    """What the exit code says, in words."""
    wrong = [f"{name} {summary[name]}" for name in _WRONG if summary[name]]
    if not summary["at_rest"]:
        wrong.append("not at rest")
    return f"WRONG: {', '.join(wrong)}" if wrong else "nothing was wrong"


def _read(arguments: Sequence[str]) -> tuple[Wanted, bool]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, required=True, help="how long jobs are due; the rest comes after"
    )
    parser.add_argument("--jobs", type=int, default=200, help="how many jobs (200)")
    parser.add_argument(
        "--seed", type=int, default=1, help="of jobs, actions and kills (1); their moments vary"
    )
    parser.add_argument(
        "--restarts", type=int, help="of the whole stack (2; of less than five minutes 1)"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and marks, and say where")
    given = parser.parse_args(arguments)
    restarts = given.restarts
    if restarts is None:
        restarts = 2 if given.minutes >= 5 else 1
    return Wanted(given.minutes, given.jobs, given.seed, restarts), given.keep


def _summary(soak: Soak, found: Found, *, minutes: float) -> dict[str, object]:
    total = found.total
    late = found.lateness
    return {
        "occurrences": total.occurrences,
        "runs": total.runs,
        "lost": total.lost,
        "double_effects": total.double_effects,
        "others": found.others + len(soak.refused),
        "worst_lateness_s": _worst(late, lambda each: each.dispatched_apart),
        "worst_start_lateness_s": _worst(late, lambda each: each.started_apart),
        "kills": soak.kills,
        "repeated": total.repeated,
        "repeated_without_kill": found.repeated_without_kill,
        "late_without_cause": len(found.late_without_cause),
        "restarts": soak.restarts,
        "at_rest": soak.rested,
        "minutes": round(minutes, 1),
    }


def _show(soak: Soak, found: Found) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 140
    table = Table(title="soak", title_justify="left")
    table.add_column("job type")
    for name in Row.__slots__:
        table.add_column(name.replace("_", " "), justify="right")
    for kind, row in [*sorted(found.rows.items()), ("all", found.total)]:
        table.add_row(kind, *(f"{getattr(row, name):,}" for name in Row.__slots__))
    console.print(table)
    _show_lateness(console, found.lateness)
    console.print(f"late without cause: {len(found.late_without_cause)}")
    for late in found.late_without_cause[:_ANOMALIES_SHOWN]:
        console.print(
            f"LATE {late.execution_id}: {late.started.total_seconds():.1f} s", markup=False
        )
    for taken in found.taken_over[:_ANOMALIES_SHOWN]:
        console.print(f"REPEATED {taken}: its worker was lost, and nobody killed it", markup=False)
    for note in soak.notes():
        console.print(note, markup=False)
    console.print(f"at rest: {'yes' if soak.rested else 'NO'}")
    for refusal in soak.refused:
        console.print(f"REFUSED {refusal}", markup=False)
    for anomaly in sorted(found.anomalies, key=lambda a: list(Wrong).index(a.wrong))[
        :_ANOMALIES_SHOWN
    ]:
        console.print(
            f"{anomaly.wrong} {anomaly.job}: {anomaly.what}: {anomaly.about}", markup=False
        )
        if anomaly.record is not None:
            sys.stdout.write(f"  {json.dumps(anomaly.record)}\n")
    if len(found.anomalies) > _ANOMALIES_SHOWN:
        console.print(f"… and {len(found.anomalies) - _ANOMALIES_SHOWN} more")


def _show_lateness(console: Console, late: Sequence[Lateness]) -> None:
    table = Table(title="lateness, s", title_justify="left")
    for column in ("from due to", "median", "p99", "worst", "of"):
        table.add_column(column, justify="left" if column == "from due to" else "right")
    for what, values in (
        ("first dispatch, but for stops of the stack", [x.dispatched_apart for x in late]),
        ("first dispatch, with them", [x.dispatched for x in late]),
        ("first start, but for stops of the stack", [x.started_apart for x in late]),
        ("first start, with them", [x.started for x in late]),
    ):
        known = sorted(value for value in values if value is not None)
        if known:
            picked = (known[len(known) // 2], known[len(known) * 99 // 100], known[-1])
            shown = [f"{value.total_seconds():.2f}" for value in picked]
            table.add_row(what, *shown, str(len(known)))
    console.print(table)
    dispatched = [each for each in late if each.dispatched_apart is not None]
    for what, each in (
        (
            "dispatched",
            max(dispatched, key=lambda x: x.dispatched_apart or timedelta(), default=None),
        ),
        ("started", max(late, key=lambda x: x.started_apart, default=None)),
    ):
        if each is not None:
            console.print(f"{what} latest: {each.execution_id}", markup=False)
    console.print(
        "Of a run that was retried only the first start is known, not the first dispatch. "
        "`worst_lateness_s` is the worst of the first line.",
        markup=False,
    )


def _worst(late: Sequence[Lateness], of: Callable[[Lateness], timedelta | None]) -> float:
    known = [value for value in map(of, late) if value is not None]
    return round(max(known, default=timedelta()).total_seconds(), 2)


def _tell(text: str) -> None:
    sys.stdout.write(f"{time.monotonic() - _BEGAN:7.1f} s  {text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
