"""A soak test with real kills on one of the local stacks; see --help."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.soak.account import Account, AnomalyKind, Lateness, Row
from tests.soak.drive import Soak, SoakConfig, Tell
from tests.soak.embedded import EmbeddedSoakStack
from tests.soak.stack import SoakStack
from tests.soak.target import Target, running

_BEGAN = time.monotonic()
_ANOMALIES_SHOWN = 50
_HELP = """
Runs hundreds of jobs on a dedicated local stack, kills its processes at random moments, restarts
the stack, and then accounts for every occurrence: it compares the records in the API and the files
that scripts leave with its own list of what should have run.

--stack emulator (default): MiniStack, the deployed CDK app, three workers. Killed (SIGKILL):
workers, which are restarted within a second; the emulator's processes of watcher, Lambda executor,
API and auditor, which are invoked again by their rules, queues and callers. A Lambda executor that
is killed just when it receives a message leaves that message hidden for the pool's 15 minutes; the
end then waits for it. Do not change the project meanwhile: a restart would deploy the change. Not
killed: the emulator itself. It keeps its state (tables, queues, files) only over a clean stop, so a
restart stops it cleanly. A crash of the database or the queue is AWS's to survive and is not tested
here.

--stack strict: the same behind the stand-in for AWS, which enforces AWS's limits and adds its
latencies and faults (docs/internals/testing.md).

--stack embedded: the embedded stack with three workers. Killed (SIGKILL): its parts, and the whole
of it: a restart is a kill of all processes in a random order.

The last line is one JSON object. The exit code is 0 only if nothing was lost, nothing was done
twice, no attempt was repeated without a kill, no other anomaly was found, and the system came to
rest. Attempts that were repeated because their worker was killed are counted as `repeated`: the
guarantee is at-least-once. An occurrence that was skipped for lateness, failed, died or was
cancelled must have a cause: the payload asks for it, something was killed or stopped at most 3
minutes before, or the pool was busy. A run that began over a minute late without such a cause is
listed and counted as `late_without_cause`, which does not change the exit code.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the soak test and print the results. Returns the exit code."""
    wanted, kind, keep = _read(arguments)
    began = time.monotonic()
    with running(_STACKS[kind], _tell, keep=keep) as stack:
        soak = Soak(stack, wanted, _tell)
        found = soak.run()
        _show(soak, found)
        summary = _summary(soak, found, minutes=(time.monotonic() - began) / 60)
    sys.stdout.write(f"{verdict(summary)}\n{json.dumps(summary)}\n")
    return exit_code(summary)


_STRICT = ("scale=0.01", "lag_chance=0.2", "fault_chance=0.005", "reset_chance=0.005")
"""So few jobs as a soak has are throttled only at such rates."""
_STACKS: Mapping[str, Callable[[Path, Tell], Target]] = {
    "emulator": SoakStack,
    "strict": partial(SoakStack, strict=_STRICT),
    "embedded": EmbeddedSoakStack,
}
_WRONG = ("lost", "double_effects", "others", "repeated_without_kill")


def exit_code(summary: Mapping[str, object]) -> int:
    """0 if *summary* has no failure. Lateness is reported but not a failure."""
    return int(not summary["at_rest"] or any(summary[name] for name in _WRONG))


def verdict(summary: Mapping[str, object]) -> str:
    """The result behind the exit code, in words."""
    wrong = [f"{name} {summary[name]}" for name in _WRONG if summary[name]]
    if not summary["at_rest"]:
        wrong.append("not at rest")
    return f"WRONG: {', '.join(wrong)}" if wrong else "no failures"


def _read(arguments: Sequence[str]) -> tuple[SoakConfig, str, bool]:
    parser = argparse.ArgumentParser(
        prog="python -m tests.soak",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=float, required=True, help="how long jobs are due; the end takes longer"
    )
    parser.add_argument(
        "--stack", choices=_STACKS, default="emulator", help="which stack (%(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=200, help="number of jobs (200)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of jobs, actions and kills (1); timing varies"
    )
    parser.add_argument(
        "--restarts", type=int, help="restarts of the whole stack (2; 1 below five minutes)"
    )
    parser.add_argument(
        "--keep", action="store_true", help="keep and print the folder of logs and marks"
    )
    given = parser.parse_args(arguments)
    restarts = given.restarts
    if restarts is None:
        restarts = 2 if given.minutes >= 5 else 1
    return SoakConfig(given.minutes, given.jobs, given.seed, restarts), given.stack, given.keep


def _summary(soak: Soak, found: Account, *, minutes: float) -> dict[str, object]:
    total = found.total
    late = found.lateness
    return {
        "occurrences": total.occurrences,
        "runs": total.runs,
        "lost": total.lost,
        "double_effects": total.double_effects,
        "others": found.others + len(soak.refused) + len(soak.died),
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


def _show(soak: Soak, found: Account) -> None:
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
        console.print(f"REPEATED {taken}: its worker was lost without a kill", markup=False)
    for note in soak.notes():
        console.print(note, markup=False)
    console.print(f"at rest: {'yes' if soak.rested else 'NO'}")
    for refusal in soak.refused:
        console.print(f"REFUSED {refusal}", markup=False)
    for died in soak.died:
        console.print(f"DIED {died}", markup=False)
    for anomaly in sorted(found.anomalies, key=lambda a: list(AnomalyKind).index(a.wrong))[
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
    for column in ("delay of", "median", "p99", "worst", "of"):
        table.add_column(column, justify="left" if column == "delay of" else "right")
    for what, values in (
        ("first dispatch, without stops of the stack", [x.dispatched_apart for x in late]),
        ("first dispatch, including stops", [x.dispatched for x in late]),
        ("first start, without stops of the stack", [x.started_apart for x in late]),
        ("first start, including stops", [x.started for x in late]),
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
        "For a retried run, only the first start is known, not the first dispatch. "
        "`worst_lateness_s` is the worst value of the first line.",
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
