"""The supervisor of a worker, with real processes: the end of either process, in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
AT_MOST = 30.0
"""Timeout of a test in seconds."""

PROGRAM = """
import os, signal, subprocess, sys, time
from functions.worker import supervisor
from nextfire.adapters.sqs.run_queue import SqsDelivery

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def hold(journal, *names):
    journal.hold([SqsDelivery(None, "url", "body", name, name, "g") for name in names])
    say("holds", *names)

def give_back(held, died_at):
    say("gives back", *[each.message_id for each in held])

def serve(journal):
    say("worker", os.getpid())
"""
END = """
supervisor._serve, supervisor._give_back = serve, give_back
sys.exit(supervisor.main())
"""
SLEEP = "    while True: time.sleep(60)\n"


class Supervised:
    """A supervisor whose worker does *serve*. `said`: the lines written by all of its processes."""

    def __init__(self, folder: Path, serve: str, *, young: float, **environment: str) -> None:
        self._output = folder / "output"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    (
                        f"{PROGRAM}{serve}\nsupervisor._MIN_LIFETIME = {young}\n"
                        f"supervisor._PAUSE = 0.05{END}"
                    ),
                ],
                env={"PYTHONPATH": f"{ROOT / 'layers'}:{ROOT}", **environment},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def said(self) -> list[str]:
        return self._output.read_text().splitlines()

    @property
    def workers(self) -> list[int]:
        return [int(line.split()[1]) for line in self.said if line.startswith("worker ")]

    def heard(self, *words: str) -> bool:
        return any(line.startswith(words) for line in self.said)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + AT_MOST
        while not condition():
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def ended(self) -> int:
        return self.process.wait(timeout=AT_MOST)


Start = Callable[..., Supervised]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[Supervised] = []

    def begin(serve: str, *, young: float = 60.0, **environment: str) -> Supervised:
        started.append(Supervised(tmp_path, serve, young=young, **environment))
        return started[-1]

    yield begin
    for each in started:
        for pid in [each.process.pid, *each.workers]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        each.process.wait()


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("status", [0, 1, 7])
def test_it_ends_with_the_status_of_its_worker(start: Start, status: int) -> None:
    supervised = start(f"    sys.exit({status})", young=0)

    assert supervised.ended() == status
    assert len(supervised.workers) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_passes_signals_on_and_waits(start: Start, number: signal.Signals) -> None:
    supervised = start(
        f"    signal.signal({int(number)}, lambda *_: say('stops'))\n"
        "    say('ready')\n    signal.pause()\n    time.sleep(0.1)\n    say('has ended')"
    )
    supervised.wait_until(lambda: supervised.heard("ready"))

    supervised.process.send_signal(number)

    assert supervised.ended() == 0
    assert supervised.said[-2:] == ["stops", "has ended"]


def test_a_worker_that_still_starts_ends_by_the_signal(start: Start) -> None:
    supervised = start(SLEEP)
    supervised.wait_until(lambda: bool(supervised.workers))

    supervised.process.terminate()

    assert supervised.ended() == 128 + signal.SIGTERM


def test_a_signal_in_a_destructor_also_ends_a_worker_that_still_starts(start: Start) -> None:
    """Python ignores exceptions of destructors and of callbacks of weak references, which imports
    use: a handler that raises has no effect there.
    """
    supervised = start(
        "    class Last:\n"
        "        def __del__(self): os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.2)\n"
        f"    Last()\n{SLEEP}"
    )

    assert supervised.ended() == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("death", "status"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139),
        ("raise RuntimeError('a defect')", 1),
    ],
)
def test_what_a_dead_worker_held_is_given_back(start: Start, death: str, status: int) -> None:
    supervised = start(f"    hold(journal, 'a', 'b')\n    hold(journal, 'c')\n    {death}")

    assert supervised.ended() == status
    assert [line for line in supervised.said if "gives" in line] == ["gives back a b c"]


def test_a_worker_that_lived_is_started_again_with_an_empty_list(start: Start) -> None:
    supervised = start("    hold(journal, 'a')\n" + SLEEP, young=0)

    for number in (1, 2):
        supervised.wait_until(lambda n=number: len(supervised.workers) == n)  # type: ignore[misc]
        supervised.wait_until(lambda n=number: supervised.said.count("holds a") == n)  # type: ignore[misc]
        os.kill(supervised.workers[-1], signal.SIGKILL)
    supervised.wait_until(lambda: len(supervised.workers) == 3)
    supervised.process.terminate()

    assert supervised.ended() == 128 + signal.SIGTERM
    # The third worker got SIGTERM at its start, and may have held its message by then.
    assert [line for line in supervised.said if "gives" in line][:2] == ["gives back a"] * 2


def test_a_worker_that_died_at_once_is_not_started_again_however_long_the_return_takes(
    start: Start,
) -> None:
    supervised = start(
        "    hold(journal, 'a')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "def give_back(held, died_at):\n    time.sleep(3)\n    say('gives back')\n",
        young=2.0,
    )

    assert supervised.ended() == 137
    assert supervised.heard("gives back")
    assert len(supervised.workers) == 1


def test_what_a_worker_held_is_given_back_though_nothing_can_be_logged(
    start: Start, tmp_path: Path
) -> None:
    note = tmp_path / "note"
    supervised = start(
        "    os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
        "    hold(journal, 'a')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "say = lambda *_: None\n"
        f"def give_back(held, died_at):\n    open({str(note)!r}, 'w').write('given back')\n"
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 1)\n"
    )

    assert supervised.ended() == 137
    assert note.read_text() == "given back"


def test_a_worker_of_one_run_is_not_started_again_in_what_that_run_left(start: Start) -> None:
    """A script that can kill its worker would be next to another run, in the same task."""
    supervised = start(
        "    hold(journal, 'a')\n    time.sleep(0.2)\n    os.kill(os.getpid(), signal.SIGKILL)\n",
        young=0,
        NEXTFIRE_ISOLATION="task",
    )

    assert supervised.ended() == 137
    assert supervised.heard("gives back a")
    assert len(supervised.workers) == 1


def test_a_worker_that_was_stopped_is_not_started_again(start: Start) -> None:
    supervised = start(
        "    signal.signal(signal.SIGTERM, lambda *_: say('stops'))\n    hold(journal, 'a')\n"
        + SLEEP,
        young=0,
    )
    supervised.wait_until(lambda: supervised.heard("holds"))
    supervised.process.terminate()
    supervised.wait_until(lambda: supervised.heard("stops"))

    os.kill(supervised.workers[0], signal.SIGKILL)

    assert supervised.ended() == 137
    assert supervised.heard("gives back a")
    assert len(supervised.workers) == 1


def test_a_worker_that_is_paused_keeps_what_it_holds(start: Start) -> None:
    supervised = start("    hold(journal, 'a')\n    time.sleep(0.5)\n    journal.release([])")
    supervised.wait_until(lambda: supervised.heard("holds"))
    worker = supervised.workers[0]

    os.kill(worker, signal.SIGSTOP)
    supervised.wait_until(lambda: " T " in Path(f"/proc/{worker}/stat").read_text())
    supervised.process.send_signal(signal.SIGCHLD)  # makes it check again
    os.kill(supervised.process.pid, 0)
    assert not supervised.heard("gives")

    os.kill(worker, signal.SIGCONT)
    supervised.ended()


ORPHANS = """    hold(journal, 'a')
    code = "import os, time\\nif not os.fork():\\n os.setsid()\\ntime.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    say("child", child.pid)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_given_back_while_a_script_lives(start: Start) -> None:
    supervised = start(
        ORPHANS + "supervisor._ENDED_BY_KEEPERS = 0.2\n"
        "def give_back(held, died_at):\n"
        "    left = open(f'/proc/{os.getppid()}/task/{os.getppid()}/children').read().split()\n"
        "    say('gives back while', *[pid for pid in left if int(pid) != os.getpid()])\n"
    )

    assert supervised.ended() == 137
    assert [line for line in supervised.said if "gives" in line] == ["gives back while"]


def test_it_waits_for_scripts_that_end_by_themselves(start: Start) -> None:
    """Their keepers end them; the supervisor kills nothing before that."""
    supervised = start(
        "    hold(journal, 'a')\n"
        "    code = 'import time; time.sleep(0.5); print(\"is done\", flush=True)'\n"
        "    subprocess.Popen([sys.executable, '-c', code], start_new_session=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    assert supervised.ended() == 137
    assert supervised.said[-2:] == ["is done", "gives back a"]


def test_a_worker_whose_supervisor_dies_is_stopped(start: Start) -> None:
    supervised = start(
        "    signal.signal(signal.SIGTERM, lambda *_: say('stops'))\n    say('ready')\n"
        "    signal.pause()\n    say('has ended')"
    )
    supervised.wait_until(lambda: supervised.heard("ready"))

    supervised.process.kill()
    supervised.ended()

    supervised.wait_until(lambda: supervised.heard("has ended"))
    supervised.wait_until(lambda: not is_alive(supervised.workers[0]))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user")
def test_others_of_its_user_cannot_look_into_it_nor_into_a_worker_that_begins(
    start: Start, tmp_path: Path
) -> None:
    tmp_path.chmod(0o777)
    supervised = start("    pass\n" + SLEEP + "os.setgid(65534)\nos.setuid(65534)\n")
    supervised.wait_until(lambda: bool(supervised.workers))

    for pid in (supervised.process.pid, supervised.workers[0]):
        looked = subprocess.run(
            ["cat", f"/proc/{pid}/environ"],
            user=65534,
            group=65534,
            capture_output=True,
            check=False,
        )
        assert b"Permission denied" in looked.stderr
