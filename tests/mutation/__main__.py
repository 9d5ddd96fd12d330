"""Removes each guard of the code, one at a time, and checks that a test fails.

The mutants are derived from the code (see `derive`). Prints a table, and one JSON object as the
last line. The exit status is 0 only if no mutant survived.
"""

from __future__ import annotations

import argparse
import ast
import fcntl
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TextIO

from tests.mutation.children import copied, warm_up
from tests.mutation.derive import derived
from tests.mutation.equivalents import split_equivalents
from tests.mutation.ledger import Ledger
from tests.mutation.meeting import CoverageCache
from tests.mutation.running import FOLDERS
from tests.mutation.source import Mutant, Product
from tests.mutation.trial import MutantVerdict, Plan, format_verdict, tried

ROOT = Path(__file__).parents[2]
WORK = ROOT / ".nextfire" / "mutation"
_STDERR = os.dup(2)  # children redirect theirs


def main(arguments: list[str]) -> int:
    """Run the command. Returns its exit status."""
    asked = _parser().parse_args(arguments)
    began = time.monotonic()
    folders = [WORK / f"copy-{number}" for number in range(asked.jobs)]
    product = Product.read(ROOT, FOLDERS)
    mutants, equivalent, unused = split_equivalents(derived(product))
    wanted = [
        each
        for each in mutants
        if any(part in f"{each.kind} {each.place} {each.name}" for part in asked.only or [""])
    ]
    ledger = Ledger(WORK / "ledger.jsonl")
    if asked.again:
        wanted = [each for each in wanted if ledger.survived(each)]
    before = {
        number: MutantVerdict(killer, before=True)
        for number, each in enumerate(wanted)
        if asked.resume and (killer := ledger.still(each)) is not None
    }
    if asked.list:
        for each in wanted:
            print(f"{each.kind:9} {each.place} {each.where}: {each.change}")
        killed = [each for each in wanted if ledger.still(each) is not None]
        survived = [each for each in wanted if ledger.survived(each)]
        known = {"mutants": len(wanted), "equivalent": len(equivalent), "killed": len(killed)}
        print(
            json.dumps({**known, "survived": [f"{each.place} {each.change}" for each in survived]})
        )
        return 0
    lock = _alone()
    for folder in folders:
        copied(ROOT, folder)
    warm_up()
    sources = {each.path: each.source for each in product.modules}
    for each in wanted:
        # a mutant that does not import would count as killed
        ast.parse(each.applied(sources[each.path]))
    kept = CoverageCache(folders[0], WORK / "meeting")
    plan = Plan(
        sources, wanted, folders, kept, ledger, _say, thorough=asked.thorough, verdicts=before
    )
    found = tried(plan)
    verdicts = [(each, found[number]) for number, each in enumerate(wanted)]
    survived = [mutant for mutant, verdict in verdicts if verdict.killer is None]
    lock.close()
    if not asked.json:
        _print_table(verdicts)
    for entry in unused:
        print(f"equivalent, but it matches no mutant: {entry.path} {entry.where}: {entry.change}")
    kinds = Counter(mutant.kind for mutant, _ in verdicts)
    document = {
        "mutants": len(verdicts),
        "killed": len(verdicts) - len(survived),
        "of_these_before": sum(verdict.before for _, verdict in verdicts),
        "equivalent": len(equivalent),
        "unused_equivalents": len(unused),
        "kinds": dict(sorted(kinds.items())),
        "seconds": round(time.monotonic() - began),
        "survived": [f"{each.place} {each.where}: {each.change}" for each in survived],
    }
    print(json.dumps(document))
    return 1 if survived or unused else 0


def _alone() -> TextIO:
    """Lock the copies for this process until the returned file is closed."""
    WORK.mkdir(parents=True, exist_ok=True)
    lock = (WORK / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit("Another run is using .nextfire/mutation. Wait until it ends.")
    return lock


def _print_table(verdicts: list[tuple[Mutant, MutantVerdict]]) -> None:
    for mutant, verdict in verdicts:
        print(format_verdict(mutant, verdict))
    print()
    for kind in sorted({mutant.kind for mutant, _ in verdicts}):
        of_kind = [verdict for mutant, verdict in verdicts if mutant.kind == kind]
        left = sum(each.killer is None for each in of_kind)
        print(f"{kind:9} {len(of_kind):4} mutants, {left} survived")


def _say(text: str) -> None:
    os.write(_STDERR, f"{text}\n".encode())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument(
        "--only",
        action="append",
        help="only mutants whose kind, place or change contains this; repeatable; default: all",
    )
    parser.add_argument("--jobs", type=int, default=2, help="concurrent child processes; default 2")
    parser.add_argument(
        "--again", action="store_true", help="only mutants that survived their last trial"
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="do not retry mutants that an existing test killed if their function is unchanged; "
        "they are counted",
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help="run all cases of the tests that execute a mutant, not the first of each and 150 more",
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list the mutants and their last results without trying any",
    )
    parser.add_argument("--json", action="store_true", help="print no table")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
