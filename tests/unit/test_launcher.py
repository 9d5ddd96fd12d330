"""The launcher of keepers as a real process: what it starts, tolerates and cleans up."""

from __future__ import annotations

import array
import errno
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.scripts import kept_program, process_table
from nextfire.adapters.scripts.keeper import Request
from nextfire.adapters.scripts.kept_program import SupervisedProgram
from nextfire.adapters.scripts.launcher import Launch
from nextfire.adapters.scripts.launching import LauncherClient, StandardStreams
from nextfire.adapters.scripts.script_streams import Pump
from nextfire.domain.ports.scripts import Directive
from tests.crons import LONG

LAST = "import time; time.sleep(60)"
SURVIVES = "import os, time; os.setsid(); [time.sleep(60) for _ in [os.fork()]]"


class Started:
    """A program started through a launcher."""

    def __init__(self, launching: LauncherClient, *program: str) -> None:
        reader, writer = os.pipe()
        self.output = reader
        with Path(os.devnull).open("r+b") as null:
            self.kept, self.control = launching.launch(
                request(*program), StandardStreams(null.fileno(), writer, writer), namespaces=False
            )
        os.close(writer)

    def until(self, condition: Callable[[SupervisedProgram], bool]) -> None:
        """Process the keeper's reports until *condition* holds; fail after 10 s."""
        for _ in range(100):
            if condition(self.kept):
                return
            self.kept._is_gone(0.1)  # noqa: SLF001
        raise AssertionError("the condition did not become true")

    def read(self) -> bytes:
        return os.read(self.output, 1000)

    def close(self) -> None:
        self.kept.end()
        self.control.close()
        os.close(self.output)


def request(*program: str) -> dict[str, Any]:
    """*program*: the source of a Python program, or a path and arguments."""
    [first, *more] = program
    return {
        Request.PROGRAM: [*program] if more else [sys.executable, "-I", "-S", "-c", first],
        Request.ENVIRONMENT: {"LC_ALL": "C.UTF-8"},
        Request.FOLDER: "/",
        Request.USER: None,
        Request.PROCESSES: 1000,
        Request.VIEW: None,
        Request.CHANNEL: "",
        Request.FILTER: b"",
        Request.LIMITS: [],
    }


@pytest.fixture
def launching() -> Iterator[LauncherClient]:
    it = LauncherClient({})
    yield it
    it.close()


@pytest.fixture
def start(launching: LauncherClient) -> Iterator[Callable[[str], Started]]:
    made: list[Started] = []

    def one(source: str) -> Started:
        made.append(Started(launching, source))
        return made[-1]

    yield one
    for each in made:
        each.close()


Start = Callable[[str], Started]


def launcher_of(launching: LauncherClient) -> int:
    return launching._process.pid  # noqa: SLF001


def processes(marker: str) -> list[int]:
    """The ids of processes with *marker* in their arguments."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if marker.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def descriptors_of(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def eventually(condition: Callable[[], bool]) -> bool:
    until = time.monotonic() + 20
    while not (met := condition()) and time.monotonic() < until:
        time.sleep(0.01)
    return met


def test_program_runs_and_its_exit_code_is_told(start: Start) -> None:
    it = start("import os, sys; print(dict(os.environ), flush=True); sys.exit(3)")

    it.until(lambda kept: kept.ended)

    assert (it.kept.exit_code, it.kept.left_nothing) == (3, True)
    assert it.read() == b"{'LC_ALL': 'C.UTF-8'}\n"


def test_program_has_no_descriptor_of_the_launcher_or_of_another_run(start: Start) -> None:
    start(LAST)
    start(LAST)
    it = start("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")

    it.until(lambda kept: kept.ended)

    assert it.read() == b"[0, 1, 2, 3]\n"  # 3 is the descriptor of the listing


def test_launcher_has_nothing_of_this_process_in_its_environment(launching: LauncherClient) -> None:
    environment = Path(f"/proc/{launcher_of(launching)}/environ").read_bytes()

    assert environment == b""


def test_launcher_never_has_what_a_program_is_given_in_its_memory(
    launching: LauncherClient, start: Start
) -> None:
    secret = os.urandom(16).hex()
    it = start(f"import time; secret = '{secret}'; print(1, flush=True); time.sleep(60)")
    it.read()

    assert secret.encode() in memory_of(processes(secret)[0])
    assert secret.encode() not in memory_of(launcher_of(launching))


def memory_of(pid: int) -> bytes:
    """The writable memory of *pid*."""
    parts = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, *_ = line.split()
            if rights.startswith("rw"):
                first, last = (int(each, 16) for each in span.split("-"))
                memory.seek(first)
                try:
                    parts.append(memory.read(last - first))
                except OSError:
                    continue
    return b"".join(parts)


def test_a_killed_launcher_affects_no_run_and_is_replaced(
    launching: LauncherClient, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    before = start("import sys; sys.stdin.read(); import time; time.sleep(1); print('on')")
    before.until(lambda kept: kept.started)
    os.kill(launcher_of(launching), signal.SIGKILL)
    launching._process.wait()  # noqa: SLF001

    after = start("print('after')")

    after.until(lambda kept: kept.ended)
    before.until(lambda kept: kept.ended)
    assert (after.kept.exit_code, before.kept.exit_code) == (0, 0)
    assert before.read() == b"on\n"
    assert "starting a new one" in caplog.text


def test_launcher_that_hangs_costs_the_runs_that_it_was_asked_for(
    launching: LauncherClient, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_program, "_STARTED_WITHIN", 0.1)
    monkeypatch.setattr(kept_program, "_GONE_WITHIN", 0.1)
    before = start("import time; time.sleep(2); print('on')")
    before.until(lambda kept: kept.started)
    os.kill(launcher_of(launching), signal.SIGSTOP)
    it = start("print(1)")
    with Pump() as pump:
        pump.add(it.kept.sources[0])
        kept_program.supervise(it.kept, pump, timedelta(minutes=1), 1.0, lambda: Directive.CONTINUE)

    after = start("print('after')")
    after.until(lambda kept: kept.ended)
    before.until(lambda kept: kept.ended)

    assert (it.kept.ended, it.kept.started) == (True, False)
    assert (after.read(), before.read()) == (b"after\n", b"on\n")


@pytest.mark.parametrize("launcher_too", [False, True], ids=["keeper", "keeper and launcher"])
def test_all_processes_of_a_program_die_with_its_keeper(
    launching: LauncherClient,
    start: Start,
    launcher_too: bool,  # noqa: FBT001
) -> None:
    marker = f"marker_{os.urandom(8).hex()}"
    source = f"'{marker}'; import os, time; os.fork() or os.setsid(); print(1, flush=True); "
    it = start(source + "time.sleep(60)")
    it.until(lambda kept: kept.started)
    assert eventually(lambda: len(processes(marker)) == 2)
    if launcher_too:
        make_subreaper()
        os.kill(launcher_of(launching), signal.SIGKILL)
        launching._process.wait()  # noqa: SLF001
    assert it.kept.keeper is not None
    os.kill(it.kept.keeper, signal.SIGKILL)

    it.kept.end()

    assert it.kept.ended
    assert not it.kept.left_nothing
    assert processes(marker) == []


def test_a_failed_replacement_of_the_launcher_is_repeated_for_the_next_program(
    launching: LauncherClient, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.kill(launcher_of(launching), signal.SIGKILL)
    launching._process.wait()  # noqa: SLF001
    with monkeypatch.context() as short_of_memory:
        short_of_memory.setattr(subprocess, "Popen", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="no memory"):
                start("")

    it = start("print('after')")
    it.until(lambda kept: kept.ended)

    assert it.read() == b"after\n"


def fail(*_: object, **__: object) -> None:
    raise OSError(errno.ENOMEM, "no memory")


def test_programs_that_start_while_a_launcher_is_replaced_all_run(
    launching: LauncherClient, start: Start
) -> None:
    with ThreadPoolExecutor(8) as slots:
        for _ in range(10):
            os.kill(launcher_of(launching), signal.SIGKILL)
            launching._process.wait()  # noqa: SLF001
            begun = list(slots.map(start, ["print('on')"] * 8))
            for each in begun:
                each.until(lambda kept: kept.ended)
            assert [each.read() for each in begun] == [b"on\n"] * 8


@pytest.mark.parametrize("launcher_first", [False, True])
def test_all_processes_die_if_keeper_and_launcher_are_killed_at_once(
    launching: LauncherClient,
    start: Start,
    launcher_first: bool,  # noqa: FBT001
) -> None:
    make_subreaper()
    marker = f"marker_{os.urandom(8).hex()}"
    for n in range(LONG * 100 + 10):
        it = start(f"'{marker}{n}.'; import os, time; os.fork() or os.setsid(); time.sleep(60)")
        assert eventually(lambda n=n: len(processes(f"{marker}{n}.")) == 2)  # type: ignore[misc]
        it.until(lambda kept: kept.keeper is not None)
        assert it.kept.keeper is not None
        both = [it.kept.keeper, launcher_of(launching)]
        for pid in reversed(both) if launcher_first else both:
            os.kill(pid, signal.SIGKILL)

        it.kept.end()

        assert processes(f"{marker}{n}.") == []


def test_all_processes_of_a_program_die_with_its_keeper_after_a_change_of_launcher(
    launching: LauncherClient, start: Start
) -> None:
    """And the successor, a child of this process too, is not killed with it."""
    make_subreaper()
    marker = f"marker_{os.urandom(8).hex()}"
    it = start(f"'{marker}'; import os, time; os.fork() or os.setsid(); time.sleep(60)")
    it.until(lambda kept: kept.started)
    assert eventually(lambda: len(processes(marker)) == 2)
    os.kill(launcher_of(launching), signal.SIGKILL)
    launching._process.wait()  # noqa: SLF001
    other = start("import time; time.sleep(1); print('on')")
    other.until(lambda kept: kept.started)
    assert it.kept.keeper is not None
    os.kill(it.kept.keeper, signal.SIGKILL)

    it.kept.end()

    assert processes(marker) == []
    other.until(lambda kept: kept.ended)
    assert other.read() == b"on\n"
    assert launching._process.poll() is None  # noqa: SLF001


def test_only_keepers_are_killed(start: Start) -> None:
    it = start(LAST)
    it.until(lambda kept: kept.started)
    keeper = it.kept.keeper

    def programs() -> list[int]:
        return [pid for pid in processes(LAST) if pid != keeper]

    # A moment after its start, the kernel shows no arguments of a program.
    it.until(lambda _: len(programs()) == 1)
    [program] = programs()
    with subprocess.Popen(["sleep", "60"]) as other:
        for pid in (other.pid, program, 1, 0, -1, 1 << 30):
            it.kept.keeper = pid
            it.kept.kill_keeper()

        process_table.family_of(program)
        assert other.poll() is None
        other.kill()

    it.kept.keeper = keeper
    it.kept.kill_keeper()
    it.until(lambda kept: kept.ended)


def test_a_program_blocks_and_ignores_no_signal(launching: LauncherClient) -> None:
    # Not Python, which changes them itself.
    it = Started(launching, "/bin/grep", "Sig[BI]", "/proc/self/status")
    it.until(lambda kept: kept.ended)

    masks = dict(line.split() for line in it.read().decode().splitlines())
    it.close()
    # Without those that the C library keeps for itself.
    found = {
        name: [number for number in signal.valid_signals() if int(mask, 16) >> (number - 1) & 1]
        for name, mask in masks.items()
    }
    assert found == {"SigBlk:": [], "SigIgn:": []}


def make_subreaper() -> None:
    from nextfire.adapters.scripts.confinement import PR_SET_CHILD_SUBREAPER, prctl  # noqa: PLC0415

    prctl(PR_SET_CHILD_SUBREAPER, 1)


def test_launcher_ends_with_its_executor_and_so_do_the_programs() -> None:
    marker = f"marker_{os.urandom(8).hex()}"
    other = LauncherClient({})
    it = Started(other, f"'{marker}'; {LAST}")
    it.until(lambda kept: kept.started)
    launcher = other._process  # noqa: SLF001

    it.control.close()  # the same happens when this process dies
    os.close(it.output)
    other.close()

    assert launcher.wait(20) == 0
    assert processes(marker) == []


def send(launching: LauncherClient, message: bytes, descriptors: list[int]) -> None:
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    launching._socket.sendmsg([message], rights if descriptors else [])  # noqa: SLF001


def test_other_version_is_refused_in_words(launching: LauncherClient) -> None:
    near, far = socket.socketpair()
    with near:
        with far, Path(os.devnull).open("r+b") as null:
            send(launching, bytes([Launch.VERSION + 1, 0]), [far.fileno()] + [null.fileno()] * 4)
        reply = b"".join(iter(lambda: near.recv(1000), b""))

    assert reply.startswith(b"E the executor speaks another version")


def test_launcher_withstands_any_message(launching: LauncherClient, start: Start) -> None:
    """A malformed message affects only the run that it requests."""
    draw = random.Random(7)  # noqa: S311
    pid = launcher_of(launching)
    running = start("import time; time.sleep(1); print('on')")
    for _ in range(300):
        near, far = socket.socketpair()
        with near, far, Path(os.devnull).open("r+b") as null:
            message = draw.choice(
                [
                    draw.randbytes(draw.randrange(1, 40)),
                    bytes([Launch.VERSION, draw.randrange(256)]),
                    bytes([Launch.VERSION, Launch.CHANNEL | Launch.NETWORK]),
                ]
            )
            count = draw.choice([0, 1, 3, 5, 6, 7, 20, 100])
            send(launching, message, ([far.fileno()] + [null.fileno()] * count)[:count])

    it = start("print('still there')")
    it.until(lambda kept: kept.ended)
    running.until(lambda kept: kept.ended)

    assert it.read() == b"still there\n"
    assert running.read() == b"on\n"
    assert launcher_of(launching) == pid
    assert eventually(lambda: descriptors_of(pid) <= 10)


def test_launcher_does_not_leak_over_many_programs(launching: LauncherClient, start: Start) -> None:
    pid = launcher_of(launching)

    def look() -> tuple[int, int]:
        children = sum(
            int(path.read_text().rpartition(")")[2].split()[1]) == pid
            for path in Path("/proc").glob("[0-9]*/stat")
            if path.exists()
        )
        return descriptors_of(pid), children

    first = start("")
    first.until(lambda kept: kept.ended)
    before = look()
    for _ in range(60):
        it = start("")
        it.until(lambda kept: kept.ended)

    assert eventually(lambda: look() == before)
