"""Explores every model, and shows that each broken protocol violates its property."""

from __future__ import annotations

import argparse
import json
import sys

from tests.crons import LONG
from tests.model.catalogue import BROKEN, LARGE, NOT_NEEDED, OPEN, SMALL
from tests.model.explore import explore


def say(line: object) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.model", description=__doc__)
    parser.add_argument(
        "--long",
        action="store_true",
        default=LONG,
        help="also explore the large models: minutes",
    )
    parser.add_argument("--traces", action="store_true", help="print the steps to each violation")
    arguments = parser.parse_args()
    models = SMALL | (LARGE if arguments.long else {})
    states = violations = shown = 0
    say(f"{'model':45}{'states':>10}{'transitions':>13}{'depth':>7}{'properties':>12}")
    for name, model in models.items():
        explored = explore(model)
        states += explored.states
        sizes = f"{explored.states:>10,}{explored.transitions:>13,}{explored.depth:>7}"
        say(f"{name:45}{sizes}{len(model.properties):>12}")
        if explored.violation is not None:
            violations += 1
            say(explored.violation)
    say("\nbroken protocols")
    for name, broken in BROKEN.items():
        violation = explore(broken.model).violation
        found = violation is not None and violation.property == broken.property
        shown += found
        say(f"{'shown' if found else 'NOT SHOWN':10}{name}: {broken.property}")
        if arguments.traces and violation is not None:
            say(violation)
    say("\nopen, known gaps")
    for name, broken in OPEN.items():
        violation = explore(broken.model).violation
        say(f"{'open' if violation else 'closed':10}{name}: {broken.property}")
        if arguments.traces and violation is not None:
            say(violation)
    say("\nnot needed for any property here: redundant guards, or guards that save cost")
    for name in NOT_NEEDED:
        say(f"{'':10}{name}")
    figures = {
        "models": len(models),
        "states": states,
        "broken_shown": shown,
        "violations": violations,
    }
    say(json.dumps(figures))
    return 0 if not violations and shown == len(BROKEN) else 1


if __name__ == "__main__":
    sys.exit(main())
