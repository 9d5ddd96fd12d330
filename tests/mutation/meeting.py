"""Which tests execute a line: from one run of each test file, kept until the code changes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mutation.running import FOLDERS, test_files
from tests.mutation.source import Mutant


@dataclass(slots=True)
class LineCoverage:
    """The tests that execute each line. `seconds`: duration of each test; `red`: tests that fail
    without a mutant.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[tuple[str, int], set[str]] = field(default_factory=dict)
    red: list[str] = field(default_factory=list)

    def add(self, found: dict[str, Any]) -> None:
        """Add the results of `traced` for a file."""
        ids = [nodeid for nodeid, _ in found["tests"]]
        self.seconds.update((nodeid, seconds) for nodeid, seconds in found["tests"])
        self.red += found["red"]
        for path, lines in found["lines"].items():
            for line, indexes in lines.items():
                self.tests.setdefault((path, int(line)), set()).update(ids[i] for i in indexes)

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that execute *mutant*, fastest first."""
        return self.at(mutant.lines)

    def at(self, lines: Iterable[tuple[str, int]]) -> list[str]:
        """The tests that execute one of *lines*, fastest first."""
        found = set[str]().union(*(self.tests.get(line, set()) for line in lines))
        return sorted(found, key=lambda each: (self.seconds[each], each))


class CoverageCache:
    """The results for each test file of the project in *root*, kept in *folder*."""

    def __init__(self, root: Path, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._files = {path: folder / f"{digest}.json" for path, digest in _digests(root)}
        for file in folder.glob("*.json"):
            if file not in self._files.values():
                file.unlink()

    def missing(self) -> list[str]:
        """The test files that have not been run yet."""
        return [path for path, file in self._files.items() if not file.exists()]

    def keep(self, path: str, found: dict[str, Any]) -> None:
        self._files[path].write_text(json.dumps(found))

    def meeting(self) -> LineCoverage:
        meeting = LineCoverage()
        for file in self._files.values():
            if file.exists():
                meeting.add(json.loads(file.read_text()))
        return meeting


def _digests(root: Path) -> Iterator[tuple[str, str]]:
    """Each test file with a digest of itself and of everything that it may run."""
    product = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    shared = _digest(root, [*product, *sorted((root / "tests").glob("*.py"))])
    fixtures = _digest(root, _helpers(root / "tests/integration"))
    for name in test_files(root):
        file = root / name
        parts = [shared, _digest(root, [*_helpers(file.parent), file])]
        if not name.startswith("tests/unit/"):
            parts.append(fixtures)
        yield name, hashlib.sha256("".join(parts).encode()).hexdigest()[:24]


def _helpers(folder: Path) -> list[Path]:
    """The files of *folder* that contain no tests."""
    return [path for path in sorted(folder.glob("*.py")) if not path.name.startswith("test_")]


def _digest(root: Path, files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    return digest.hexdigest()
