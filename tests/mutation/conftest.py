"""Code with guards, and its mutants."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutation.derive import derived
from tests.mutation.source import Module, Mutant, Product

ROOT = Path(__file__).parents[2]
PORTS = """
class RunStore(Protocol):
    def advance(self, run): ...
class DueStore(Protocol):
    def put(self, entries): ...
    def read(self, minute, *, consistent): ...
class Adapter:
    def advance(self, run):
        self._client.update_item(Key=run, ConditionExpression="fence = :fence AND beat = :beat")
class Due:
    def put(self, entries):
        return self._client.batch_write_item(entries)
    def read(self, minute, *, consistent):
        while True:
            page = self._client.query(minute, ConsistentRead=True)
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
"""
USE_CASE = """
class Retry:
    def __init__(self, runs: RunStore, due: DueStore):
        self._runs = runs
        self._due = due
    def retry(self, run, entry):
        if not self._due.put([entry]):
            raise UnavailableError
        note = f"run {run.uid} again"
        self._runs.advance(f"{run.uid}#{run.dispatch:03d}")
        if run.fence == 1 and run.mine:
            return max(run.epoch + 1, 5)
        return note
"""
SAMPLE = Product([Module("ports.py", PORTS.encode()), Module("use_case.py", USE_CASE.encode())])
SOURCES = {module.path: module.source.decode() for module in SAMPLE.modules}


@pytest.fixture(scope="module")
def mutants() -> list[Mutant]:
    return derived(SAMPLE)
