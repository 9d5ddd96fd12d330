"""Two versions of the product at once, in histories with deaths and lost calls."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.crons import LONG
from tests.upgrade.earlier import unpacked
from tests.upgrade.histories import EARLIER, THIS, Forks, History

_MEMORY = Path("/dev/shm")  # noqa: S108
ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(240 if LONG else 3)
"""Of three, one is an update, one is rolled back, and one has both versions all the time."""


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Forks]]:
    """What starts processes of each version."""
    earlier, alone = (tmp_path_factory.mktemp(name) for name in ("earlier", "tests"))
    alone.joinpath("tests").symlink_to(ROOT / "tests")
    paths = {THIS: (ROOT / "layers", ROOT), EARLIER: (unpacked(earlier), alone)}
    sources = {version: os.pathsep.join(map(str, each)) for version, each in paths.items()}
    with Forks(sources[THIS]) as this, Forks(sources[EARLIER]) as other:
        yield {THIS: this, EARLIER: other}


def play(seed: int, forks: Mapping[str, Forks], folder: Path, **options: Any) -> History:
    """Play a history, in memory if possible, and write its events to a file in *folder*."""
    with TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else folder) as place:
        history = History(seed, forks, Path(place) / "nextfire.db", **options)
        history.play()
    folder.joinpath("events").write_text("\n".join(history.events))
    return history


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_happens_two_versions_lose_nothing_and_run_nothing_twice(
    seed: int, forks: Mapping[str, Forks], tmp_path: Path
) -> None:
    history = play(seed, forks, tmp_path)

    assert history.wrong is None, f"{history.wrong}; see {tmp_path / 'events'}"
    assert {*history.versions.values()} == {THIS, EARLIER}


def test_a_history_depends_only_on_its_seed(forks: Mapping[str, Forks], tmp_path: Path) -> None:
    first, second = (play(10, forks, tmp_path, course="both", length=60) for _ in range(2))

    assert first.events == second.events
    assert {first.versions[worker] for worker in first.books.started.values()} == {THIS, EARLIER}
    assert {fault.split()[0] for _, fault in first.hit} == {"DIES", "FAULT"}


@pytest.mark.parametrize(
    ("defect", "seed", "found"),
    [
        ("a_renamed_version", 1, "sets an entry aside"),
        ("a_renamed_lease", 31, " began on "),
        ("another_group", 42, " began on "),
    ],
)
def test_a_defect_of_one_version_next_to_the_other_is_found(
    defect: str, seed: int, found: str, forks: Mapping[str, Forks], tmp_path: Path
) -> None:
    history = play(seed, forks, tmp_path, course="both", defects=[defect])

    assert found in str(history.wrong)


def test_these_defects_need_two_versions(forks: Mapping[str, Forks], tmp_path: Path) -> None:
    defects = ["a_renamed_version", "a_renamed_lease", "another_group"]

    assert play(31, forks, tmp_path, course="alone", length=60, defects=defects).wrong is None
