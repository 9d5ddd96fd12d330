"""When a part of the embedded stack is started again, and what its death is called."""

import pytest

from functions.embedded.restarts import MOST_DEATHS, WITHIN, cause_of_death, pause_before_restart


def test_the_pause_grows_with_each_death_and_the_eighth_is_the_last() -> None:
    deaths = [float(number) for number in range(MOST_DEATHS)]

    pauses = [pause_before_restart(deaths[: number + 1]) for number in range(MOST_DEATHS)]

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, None]


def test_deaths_of_long_ago_do_not_count() -> None:
    assert pause_before_restart([0.0, 1.0, 2.0, 3.0, 3.0 + WITHIN]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-9, "killed by SIGKILL"),
        (-11, "killed by SIGSEGV"),
        (-64, "killed by SIGRTMAX"),
        (-200, "killed by signal 200"),
        (128, "exited with code 128"),
        (137, "killed by SIGKILL"),
        (255, "exited with code 255"),
    ],
)
def test_a_death_is_named(status: int, words: str) -> None:
    assert cause_of_death(status) == words
