"""The script runner with real processes. If the tests run as root, they run as root first and then
again as another user.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nextfire.adapters.scripts import folders, launchers, process_table, removal, sandboxes
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner, ScriptLimits
from nextfire.adapters.scripts.script_streams import Pump
from nextfire.adapters.scripts.script_streams import Stream as ReadingEnd
from nextfire.adapters.scripts.script_users import ScriptUsers
from nextfire.domain.log import Stream
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit
from tests.crons import LONG
from tests.supervisors import Watch

ROOT = Path(__file__).parents[2]
AS_ROOT = os.geteuid() == 0
FORKED = "tests/unit/test_forked_script.py::test_a_fork_sees_what_a_new_interpreter_shows"
CAP = 1000
BASE_UID = 60_000
ENDLESS = "import time\nwhile True: time.sleep(1)\n"
FORKING = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), child.pid)
"""
"""A script and a child that both ignore SIGTERM; the script prints both process ids."""

BY_THEN = 2.5
"""Seconds until a script has started and installed its SIGTERM handler, even on a busy machine."""

NAMESPACES = "TEST_NAMESPACES"
"""If this variable is ``no``, the tests run as on a host without namespaces."""
START = "TEST_START"
"""If this variable is ``fork``, launchers fork all scripts that they may fork."""

only_root = pytest.mark.skipif(not AS_ROOT, reason="only root has users to give")
only_others = pytest.mark.skipif(AS_ROOT, reason="root gives scripts another user")


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        if os.environ.get(NAMESPACES) == "no":
            patched.setattr(sandboxes, "probe_host", lambda _: HostFeatures(namespaces=False))
        patched.setattr(launchers, "OFTEN", 1 if os.environ.get(START) == "fork" else sys.maxsize)
        yield


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The folder for the runner's working folders; every user can enter it."""
    path = Path(tempfile.mkdtemp(prefix="test-runner-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@cache
def runner(
    folder: Path, grace: float, limits: ScriptLimits, path: str | None
) -> ProcessScriptRunner:
    return ProcessScriptRunner(
        output_cap=CAP,
        grace=timedelta(seconds=grace),
        environment={} if path is None else {"PATH": path},
        limits=limits,
        temp_root=folder,
    )


class Runner:
    """A runner with a small output cap and a short grace period, for short scripts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self,
        source: str,
        *,
        ask: Callable[[], Directive] = lambda: Directive.CONTINUE,
        watch: Watch | None = None,
        payload: str = "{}",
        timeout: float = 20,
        grace: float = 0.3,
        name: str = "script.py",
        environment: Mapping[str, str] | None = None,
        limits: ScriptLimits = ScriptLimits(),  # noqa: B008 - it is immutable
        path: str | None = None,
        tenant: str = "acme",
    ) -> ScriptExit:
        call = ScriptCall(
            name,
            dedent(source).encode(),
            payload,
            timedelta(seconds=timeout),
            tenant,
            environment or {},
        )
        return runner(self._folder, grace, limits, path).run(call, watch or Watch(ask))

    def living(self) -> list[int]:
        """The ids of the scripts' living processes."""
        return processes_in(self._folder)


@pytest.fixture
def run(folder: Path) -> Iterator[Runner]:
    yield Runner(folder)
    for thread in threading.enumerate():
        if thread.name == "removal":  # on a busy machine, removal continues in the background
            thread.join()
    assert list(folder.iterdir()) == []  # after any outcome
    assert processes_in(folder) == []


def processes_in(folder: Path) -> list[int]:
    """The ids of living processes of scripts in *folder*, identified by the HOME they inherit, or
    by their arguments, if they are forks of a launcher.
    """
    living = [pid for pid, _, fields in process_table.processes() if fields[0] not in b"ZX"]
    home, script = f"HOME={folder}/".encode(), f"-P\0{folder}/".encode()
    found = []
    for pid in living:
        with suppress(OSError):
            if home in Path(f"/proc/{pid}/environ").read_bytes() or (
                script in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                found.append(pid)
    return found


def after(seconds: float, verdict: Directive) -> Callable[[], Directive]:
    start = time.monotonic()
    return lambda: verdict if time.monotonic() - start > seconds else Directive.CONTINUE


def descriptors() -> list[str]:
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


def eventually(condition: Callable[[], bool], within: float = 5) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


# The environment of a script


def test_script_gets_payload_and_context(run: Runner) -> None:
    source = """
        import json, os, sys
        print(json.load(sys.stdin)["to"], os.environ["NEXTFIRE_ATTEMPT"])
    """
    end = run(source, payload='{"to": "Köln"}', environment={"NEXTFIRE_ATTEMPT": "2"})

    assert end == ScriptExit(0, "Köln 2\n", "")


def test_environment_holds_nothing_of_the_executor(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "NEXTFIRE_RUNS_TABLE", "PYTHONPATH"):
        monkeypatch.setenv(name, "/secret")
    end = run(
        "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))",
        path="/opt/bin:/bin",
        environment={"NEXTFIRE_RUN_ID": "r1", "HOME": "/root", "PYTHONPATH": "mine"},
    )
    environment, cwd = json.loads(end.stdout)

    assert environment.pop("NEXTFIRE_CHANNEL").isdigit()
    assert environment == {
        "PATH": "/opt/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": f"{cwd}/lib:mine",
        "HOME": cwd,
        "TMPDIR": str(Path(cwd, "tmp")),
        "NEXTFIRE_RUN_ID": "r1",
    }


def test_script_has_standard_streams_and_its_channel_only(run: Runner) -> None:
    source = """
        import os
        listed = set(map(int, os.listdir("/proc/self/fd")))
        listed -= {0, 1, 2, int(os.environ["NEXTFIRE_CHANNEL"])}
        print([fd for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")])
    """
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        end = run(source)
    finally:
        os.close(reader)
        os.close(writer)

    assert end.stdout == "[]\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_standard_streams_can_be_opened_by_name(run: Runner, stream: str) -> None:
    end = run(f"open('/dev/{stream}', 'w').write(open('/dev/stdin').read())", payload="[1]")

    assert getattr(end, stream) == "[1]"


def test_script_leads_a_session_and_works_in_its_own_folder(run: Runner, folder: Path) -> None:
    source = """
        import os, tempfile
        print(os.getsid(0) == os.getpid(), os.getcwd(), tempfile.mkdtemp(), __file__)
        open("result.txt", "w").close()
    """
    own_session, cwd, temporary, script = run(
        source, name="s3://b/t/../gen voice.py"
    ).stdout.split()

    assert own_session == "True"
    assert Path(cwd).parent.parent == folder
    assert Path(temporary).parent == Path(cwd) / "tmp"
    assert script == f"{cwd}/gen_voice.py"


@pytest.mark.parametrize("name", ["json", "..", "", "-c", "/", "a" * 300, "böse\n\0.py"])
def test_any_name_will_do(run: Runner, name: str) -> None:
    end = run("import json; print(json.dumps(1))", name=name)

    assert end == ScriptExit(0, "1\n", "")


def test_limits(run: Runner) -> None:
    source = """
        from resource import *
        for kind in (RLIMIT_CORE, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC):
            print(*getrlimit(kind))
        print(getrlimit(RLIMIT_CPU)[0] >= 70, getrlimit(RLIMIT_CPU)[0] < 1000)
        print(open("/proc/self/oom_score_adj").read())
    """
    limits = ScriptLimits(memory_bytes=100 << 20, processes=20, file_bytes=1 << 20)
    core, data, file, files, processes, cpu, score = run(
        source, limits=limits, timeout=10
    ).stdout.split("\n")[:7]

    assert (core, data, file, files) == (
        "1 1",  # 0 does not stop dumps that the host pipes to a program
        "104857600 104857600",
        "1048576 1048576",
        "1024 1024",
    )
    assert (cpu, score) == ("True True", "1000")
    if AS_ROOT:
        assert processes == "20 20"
    else:  # without namespaces, tasks of other processes of the user count as well
        assert int(processes.split()[0]) >= 20


def test_cap_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 bytes"):
        ProcessScriptRunner(output_cap=1)


# How a script ends by itself


def test_exit_code_and_stderr(run: Runner) -> None:
    end = run("import sys; print('out'); sys.stderr.write('err'); sys.exit(3)")

    assert end == ScriptExit(3, "out\n", "err")


def test_exception_is_told_with_its_traceback(run: Runner) -> None:
    end = run("1 / 0", name="divide")

    assert end.exit_code == 1
    assert 'divide.py", line 1' in end.stderr
    assert "ZeroDivisionError" in end.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_script_killed_by_a_signal(run: Runner, number: signal.Signals) -> None:
    end = run(f"import os; print('so far'); os.kill(os.getpid(), {number})")

    assert end == ScriptExit(-number, "so far\n", "")


def test_payload_that_is_not_read_holds_nobody_up(run: Runner) -> None:
    assert run("print('done')", payload="x" * 1_000_000).stdout == "done\n"


def test_large_payload_arrives_whole(run: Runner) -> None:
    end = run("import sys; print(len(sys.stdin.buffer.read()))", payload="ö" * 1_000_000)

    assert end.stdout == "2000000\n"


def test_closed_output_does_not_end_the_supervision(run: Runner) -> None:
    end = run("import os, sys, time; os.close(1); os.close(2); time.sleep(0.5); os._exit(4)")

    assert end == ScriptExit(4, "", "")


def test_exit_code_is_known_though_the_executor_ignores_its_children(run: Runner) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    try:
        end = run("import time; time.sleep(0.3); raise SystemExit(1)")
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert (end.exit_code, end.error) == (1, None)


# Output


def test_long_output_keeps_its_first_and_its_last_half(run: Runner) -> None:
    end = run("import sys; sys.stdout.write('a' * 3000 + 'b' * 200_000 + 'c' * 700)")

    assert end.stdout == "a" * 500 + "\n… [202700 bytes cut] …\n" + "c" * 500


@pytest.mark.parametrize(("size", "cut"), [(CAP, False), (CAP + 1, True)])
def test_cap_is_exact(run: Runner, size: int, cut: bool) -> None:  # noqa: FBT001
    end = run(f"import sys; sys.stderr.write('x' * {size})")

    assert end.stderr.count("x") == CAP
    assert ("[1 bytes cut]" in end.stderr) is cut


def test_endless_output_is_drained_until_the_timeout(run: Runner) -> None:
    end = run("while True: print('z' * 100_000)", timeout=0.7)

    assert (end.timed_out, end.exit_code) == (True, -signal.SIGTERM)
    assert end.stdout.count("z") + end.stdout.count("\n") <= CAP + 2
    assert int(end.stdout.partition("[")[2].partition(" ")[0]) > 1_000_000


def test_output_written_right_before_the_exit_arrives_whole(run: Runner) -> None:
    source = """
        import fcntl, os, time
        fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)  # more than one read
        time.sleep(0.3)
        os.write(1, b"x" * 1_000_000)
        os._exit(0)
    """

    def ask() -> Directive:
        time.sleep(0.8)
        return Directive.CONTINUE

    assert f"[{1_000_000 - CAP} bytes cut]" in run(source, ask=ask).stdout


def test_binary_output(run: Runner) -> None:
    end = run(r"import sys; sys.stdout.buffer.write(b'a\x00\xff\xc3\xa4\xf0')")

    assert end.stdout == "a\0?ä?"  # each replacement is at most as long as the replaced bytes


def test_script_that_takes_its_own_output_holds_nobody_up() -> None:
    """Data that was available when polled is gone when it is read."""
    reader, writer = os.pipe()
    got: list[bytes] = []
    stream = ReadingEnd(reader, got.append)
    reading = threading.Thread(target=stream.ready, args=(0,), daemon=True)
    try:
        reading.start()
        reading.join(5)
        assert not reading.is_alive()
        assert not stream.ended
        os.write(writer, b"more")
        with Pump() as pump:
            pump.add(stream)
            pump.step(5)
    finally:
        os.close(writer)
        reading.join()
        os.close(reader)

    assert got == [b"more"]


def test_output_before_the_end_is_kept_when_it_is_killed(run: Runner) -> None:
    assert run("print('step 1')\n" + ENDLESS, timeout=BY_THEN).stdout == "step 1\n"


# How a script is stopped


def test_timeout_ends_the_script_by_sigterm(run: Runner) -> None:
    source = """
        import signal, sys, time
        def stop(*_):
            print("tidied")
            sys.exit(5)
        signal.signal(signal.SIGTERM, stop)
        time.sleep(60)
    """
    started = time.monotonic()
    end = run(source, timeout=BY_THEN, grace=10)

    assert end == ScriptExit(5, "tidied\n", "", timed_out=True)
    assert time.monotonic() - started >= BY_THEN


def test_timeout_kills_the_group_when_its_grace_is_over(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING + ENDLESS, timeout=BY_THEN, grace=0.4)
    took = time.monotonic() - started

    assert (end.timed_out, end.stopped, end.exit_code) == (
        True,
        Directive.CONTINUE,
        -signal.SIGKILL,
    )
    assert took >= BY_THEN + 0.4
    assert len(end.stdout.split()) == 2
    assert run.living() == []


@pytest.mark.parametrize("verdict", [Directive.CANCEL, Directive.HAND_BACK])
def test_verdict_ends_the_script_by_sigterm(run: Runner, verdict: Directive) -> None:
    source = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + ENDLESS
    end = run(source, ask=after(BY_THEN, verdict), grace=10)

    assert end == ScriptExit(7, "", "", stopped=verdict)


def test_verdict_is_enforced_when_its_grace_is_over(run: Runner) -> None:
    end = run(FORKING + ENDLESS, ask=after(BY_THEN, Directive.CANCEL))

    assert (end.stopped, end.timed_out, end.exit_code) == (Directive.CANCEL, False, -signal.SIGKILL)
    assert run.living() == []


def test_lost_lease_kills_at_once(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING + ENDLESS, ask=after(BY_THEN, Directive.LEASE_LOST), grace=60)

    assert (end.stopped, end.exit_code) == (Directive.LEASE_LOST, -signal.SIGKILL)
    assert time.monotonic() - started < 30
    assert run.living() == []


def test_lease_lost_within_the_grace_kills_at_once(run: Runner) -> None:
    started = time.monotonic()
    end = run(
        FORKING + ENDLESS, timeout=BY_THEN, ask=after(BY_THEN + 0.5, Directive.LEASE_LOST), grace=60
    )

    assert (end.timed_out, end.stopped) == (True, Directive.LEASE_LOST)
    assert time.monotonic() - started < 30


def test_first_cause_is_told(run: Runner) -> None:
    end = run(FORKING + ENDLESS, timeout=BY_THEN, ask=after(BY_THEN + 2, Directive.CANCEL), grace=4)

    assert (end.timed_out, end.stopped) == (True, Directive.CONTINUE)


def test_error_of_the_supervisor_leaves_no_process(run: Runner) -> None:
    watch = Watch()

    def ask() -> Directive:
        if watch.printed["stdout"]:
            raise LookupError("supervisor")
        return Directive.CONTINUE

    watch.ask = ask
    with pytest.raises(LookupError, match="supervisor"):
        run(FORKING + ENDLESS, watch=watch)
    assert len(watch.printed["stdout"].split()) == 2
    assert run.living() == []


def test_supervisor_is_asked_several_times_a_second_and_waiting_is_cheap(run: Runner) -> None:
    asked: list[float] = []

    def ask() -> Directive:
        asked.append(time.monotonic())
        return Directive.CONTINUE

    cpu = time.thread_time()
    run("import time; time.sleep(1.5)", ask=ask)

    assert 4 <= len(asked) <= 8
    assert time.thread_time() - cpu < 0.1


def test_sigterm_arrives_though_the_worker_blocks_it(run: Runner) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        end = run(ENDLESS, timeout=0.4, grace=30)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    assert end.exit_code == -signal.SIGTERM


# Processes and files that a script leaves behind


def test_background_process_ends_with_the_script(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING)

    assert len(end.stdout.split()) == 2
    assert (end.exit_code, end.timed_out) == (0, False)
    assert run.living() == []
    assert time.monotonic() - started < 5


def test_crowd_in_the_background_has_ended_with_the_run(run: Runner) -> None:
    source = """
        import os, time
        for _ in range(30):
            pid = os.fork()
            if not pid:
                os.close(1)
                os.close(2)
                ballast = bytearray(b"x") * 10_000_000  # its death takes a while
                time.sleep(60)
            print(pid)
        time.sleep(0.7)
        os._exit(0)
    """
    end = run(source)

    assert len(end.stdout.split()) == 30
    assert run.living() == []


DAEMON = """
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        print(os.getpid(), flush=True)
        for n in range(3): os.close(n)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(0.3)
"""
"""A script that leaves a daemon in another session, without a parent, and prints its id."""


@pytest.mark.parametrize("end", ["", "os._exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(60)"])
def test_daemon_ends_with_the_script(run: Runner, end: str) -> None:
    pid = run(DAEMON + end, timeout=1).stdout

    assert pid.strip().isdigit()
    assert run.living() == []


@pytest.mark.parametrize(
    "mess",
    [
        "os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)",
        "os.chmod('.', 0)",
        "[(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]",
        "os.symlink('/etc', 'etc'); os.mkfifo('pipe')",
        "import shutil; shutil.rmtree('.', ignore_errors=True)",
    ],
    ids=["closed folders", "closed itself", "deep", "links", "gone"],
)
def test_working_folder_is_removed(run: Runner, mess: str) -> None:
    assert run(f"import os; {mess}").exit_code == 0  # the fixture checks the folder


def test_removal_of_deep_folders_takes_few_descriptors(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    highest = 0
    really = os.open

    def spy(*arguments: Any, **options: Any) -> int:
        nonlocal highest
        opened = really(*arguments, **options)
        highest = max(highest, opened)
        return opened

    lowest = os.open("/", os.O_RDONLY)
    os.close(lowest)
    monkeypatch.setattr(os, "open", spy)
    run("import os; [(os.mkdir('d'), os.chdir('d')) for _ in range(99)]")

    assert highest < lowest + 40


def test_removal_that_takes_long_holds_no_outcome_up(
    run: Runner, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("pass")  # the first run may search for an interpreter in its own folders
    proceed = threading.Event()
    really = removal.remove

    def slow(path: Path) -> None:
        assert proceed.wait(30)
        really(path)

    monkeypatch.setattr("nextfire.adapters.scripts.folders.remove", slow)
    monkeypatch.setattr(folders, "_WAIT_AT_MOST", 0.05)
    tell = "import os; print(os.getuid(), os.getcwd())"
    removals: list[threading.Thread] = []
    earlier_threads = {*threading.enumerate()}  # removals of earlier tests may still run
    try:
        with ThreadPoolExecutor(1) as pool:
            runs = [pool.submit(run, tell) for _ in range(2)]
            ends = [end.result(timeout=20).stdout.split() for end in runs]
        begun = {*threading.enumerate()} - earlier_threads
        removals += [thread for thread in begun if thread.name == "removal"]
        monkeypatch.setattr("nextfire.adapters.scripts.folders.remove", really)
        ProcessScriptRunner(temp_root=folder)  # it sweeps old folders
        still_there = [Path(where).exists() for _, where in ends]
    finally:
        proceed.set()
        for thread in removals:
            thread.join()

    assert still_there == [True, True]
    assert len({user for user, _ in ends}) == (2 if AS_ROOT else 1)
    assert [thread.daemon for thread in removals] == [False, False]


@only_root
def test_user_that_cannot_be_looked_at_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    users = ScriptUsers(BASE_UID + 2000)
    before = descriptors()
    with monkeypatch.context() as broken:
        broken.setattr(
            process_table, "processes", lambda: (_ for _ in ()).throw(OSError("no more files"))
        )
        with pytest.raises(OSError, match="no more files"):
            users.take()

    assert descriptors() == before
    user = users.take()
    users.give_back(user, alone=False)
    assert user.number == BASE_UID + 2000


def test_slots_do_not_disturb_each_other(run: Runner) -> None:
    def one(n: int) -> ScriptExit:
        return run(
            f"import sys, time; time.sleep({n} / 20); print(sys.stdin.read()); sys.exit({n})",
            payload=f"{n}",
        )

    with ThreadPoolExecutor(8) as pool:
        ends = list(pool.map(one, range(8)))

    assert ends == [ScriptExit(n, f"{n}\n", "") for n in range(8)]


def test_nothing_stays_open(run: Runner) -> None:
    run("print(1)")
    before = descriptors()
    run("print(1)")
    run("print(1)", environment={"A": "a\0b"})

    assert descriptors() == before


WORKER = """
import sys
from datetime import timedelta
from pathlib import Path
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import Directive, ScriptCall

class Watch:
    def ask(self):
        return Directive.CONTINUE
    def output(self, stream, data):
        print(data.decode(), end="", flush=True)

source = sys.stdin.buffer.read()
call = ScriptCall("script.py", source, "{}", timedelta(minutes=1), "acme")
ProcessScriptRunner(temp_root=Path(sys.argv[1])).run(call, Watch())
"""


@pytest.mark.usefixtures("run")
def test_script_and_all_it_started_die_with_their_worker(folder: Path) -> None:
    source = FORKING + DAEMON
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, folder],
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(source + "time.sleep(60)")
        worker.stdin.close()
        pids = [pid for _ in range(2) for pid in worker.stdout.readline().split()]
        assert len(pids) == 3
        assert len(processes_in(folder)) == 3
        worker.kill()

    assert eventually(lambda: processes_in(folder) == [])
    assert len(list(folder.iterdir())) == 1

    def swept() -> bool:  # succeeds after the keeper has ended too
        ProcessScriptRunner(temp_root=folder)
        return list(folder.iterdir()) == []

    assert eventually(swept)


def test_folder_in_use_is_not_swept(run: Runner, folder: Path) -> None:
    def ask() -> Directive:
        ProcessScriptRunner(temp_root=folder)
        return Directive.CONTINUE

    end = run("import os, time; time.sleep(0.5); print(os.path.exists(__file__))", ask=ask)

    assert end.stdout == "True\n"


# Isolation


SPY = """
import ctypes, os, sys
for pid in {os.getppid(), *map(int, sys.stdin.read().split())}:
    for attack in (
        lambda: open(f"/proc/{pid}/environ", "rb").read(),
        lambda: open(f"/proc/{pid}/mem", "rb").read(1),
        lambda: os.listdir(f"/proc/{pid}/fd"),
    ):
        try:
            print("could see", attack())
        except OSError as error:
            print(type(error).__name__)
    print(ctypes.CDLL(None).ptrace(16, pid, 0, 0))
"""


def test_executor_cannot_be_looked_into(run: Runner) -> None:
    tried = run(SPY, payload=f"{os.getpid()} {os.getppid()}").stdout.split()

    assert len(tried) >= 8
    assert {*tried} <= {"PermissionError", "FileNotFoundError", "-1"}


@only_root
def test_neighbours_cannot_be_looked_into(run: Runner) -> None:
    seen = threading.Event()
    watch = Watch(lambda: Directive.LEASE_LOST if seen.is_set() else Directive.CONTINUE)
    printed = watch.printed["stdout"]
    spy = """
        import os
        pid = {}
        for what in (f"/proc/{{pid}}/environ", f"/proc/{{pid}}/cwd", "{}", "{}/script.py"):
            try:
                print(os.listdir(what) if os.path.isdir(what) else open(what).read())
            except OSError as error:
                print(type(error).__name__)
        try:
            os.kill(pid, 0)
        except OSError as error:
            print(type(error).__name__)
    """
    with ThreadPoolExecutor(1) as pool:
        source = "import os, time; print(os.getpid(), os.getcwd()); time.sleep(60)"
        neighbour = pool.submit(run, source, watch=watch)
        try:
            assert eventually(lambda: printed.endswith(b"\n"))
            _, cwd = printed.decode().split()
            (pid,) = run.living()
            refusals = run(spy.format(pid, cwd, cwd)).stdout.split()
        finally:
            seen.set()
        assert neighbour.result().stopped is Directive.LEASE_LOST
    assert len(refusals) == 5
    assert {*refusals} <= {"PermissionError", "FileNotFoundError", "ProcessLookupError"}


@only_root
def test_script_is_nobody_known_and_can_become_nobody_else(run: Runner) -> None:
    source = """
        import os
        print(os.getresuid(), os.getresgid(), os.getgroups())
        for become in (os.setuid, os.setgid):
            try:
                become(0)
            except PermissionError:
                print("refused")
        print([line.split()[1] for line in open("/proc/self/status") if "NoNewPrivs" in line])
    """
    before = os.getgroups()
    os.setgroups([4242])  # executors may have supplementary groups
    try:
        ids, *rest = run(source).stdout.splitlines()
    finally:
        os.setgroups(before)
    uid = int(ids.partition(",")[0].strip("("))

    assert BASE_UID <= uid < BASE_UID + 1000
    assert ids == f"({uid}, {uid}, {uid}) ({uid}, {uid}, {uid}) []"
    assert rest == ["refused", "refused", "['1']"]


@only_root
def test_side_by_side_they_are_different_users_of_other_executors_too(folder: Path) -> None:
    runners = [ProcessScriptRunner(temp_root=folder, environment={"A": str(n)}) for n in range(2)]
    call = ScriptCall(
        "a.py", b"import os, time; print(os.getuid()); time.sleep(1)", "", timedelta(seconds=9), "t"
    )
    with ThreadPoolExecutor(4) as pool:
        ends = list(pool.map(lambda r: r.run(call, Watch()), runners * 2))

    assert len({end.stdout for end in ends}) == 4


@only_root
def test_what_a_user_leaves_in_shared_folders_is_removed(run: Runner) -> None:
    source = """
        import os, tempfile
        for folder in ("/tmp", "/dev/shm"):
            made = tempfile.mkdtemp(dir=folder)
            open(f"{made}/file", "w").close()
            os.symlink("/etc", f"{made}/link")
            print(made)
    """
    made = run(source).stdout.split()

    assert len(made) == 2
    assert [path for path in made if os.path.lexists(path)] == []
    assert Path("/etc/passwd").exists()


@only_root
@pytest.mark.skipif(os.environ.get(NAMESPACES) == "no", reason="the filter forbids all of it")
def test_shared_memory_that_a_user_leaves_is_removed(run: Runner) -> None:
    source = """
        import ctypes, os
        libc = ctypes.CDLL(None)
        print(os.getuid())
        print(libc.shmget(0, 4096, 0o1600), libc.semget(0, 1, 0o1600), libc.msgget(0, 0o1600))
    """
    user, made = run(source).stdout.splitlines()

    assert "-1" not in made.split()
    left = [Path("/proc/sysvipc", kind).read_text() for kind in ("shm", "sem", "msg")]
    assert [listing for listing in left if f" {user} " in listing] == []


# Attacks


@only_root
def test_namespaces_of_its_own_are_no_refuge(run: Runner, folder: Path) -> None:
    source = """
        import ctypes, os, time
        users_and_processes = 0x10000000 | 0x20000000
        if ctypes.CDLL(None).unshare(users_and_processes) or os.fork():
            time.sleep(0.5)
            os._exit(0)
        print("pid in the namespace:", os.getpid(), flush=True)
        if os.fork() == 0:
            os.setsid()
        time.sleep(60)
    """
    end = run(source)

    assert end.exit_code == 0
    assert end.stdout in {"pid in the namespace: 1\n", ""}  # some machines do not allow this
    assert processes_in(folder) == []


BOMB = """
import os, time
first, made = os.getpid(), 0
while True:
    try:
        while made < 2000:
            pid = os.fork()
            made += 1
            if not pid and made % 2:
                os.setsid()
    except OSError:
        time.sleep(0.01)
    if made >= 2000 or os.getpid() == first and time.process_time() > 0.2:
        END
"""
"""Each process forks up to 2,000 others, half of them in new sessions."""


@pytest.mark.parametrize("ending", ["time.sleep(60)", "os._exit(0)"])
def test_fork_bomb_is_bounded_and_ends(run: Runner, folder: Path, ending: str) -> None:
    source = BOMB.replace("END", ending)
    limits = ScriptLimits(processes=100)
    most = 0

    def ask() -> Directive:
        nonlocal most
        most = max(most, len(processes_in(folder)))
        return Directive.CONTINUE

    end = run(source, limits=limits, timeout=1.5, ask=ask)

    assert end.timed_out or end.exit_code == 0
    # The user's tasks are added to the limit; some of them may have ended since.
    assert 10 < most <= (100 if AS_ROOT else 110)
    assert run("print('next')").stdout == "next\n"


def test_memory_is_bounded(run: Runner) -> None:
    source = """
        try:
            hog = bytearray(4 << 30)
        except MemoryError:
            print("refused")
    """
    assert run(source, limits=ScriptLimits(memory_bytes=256 << 20)).stdout == "refused\n"


def test_files_are_bounded(run: Runner) -> None:
    source = """
        try:
            with open("large", "wb") as file:
                file.write(bytes(3 << 20))
        except OSError as error:
            print(error.strerror)
    """
    assert run(source, limits=ScriptLimits(file_bytes=1 << 20)).stdout == "File too large\n"


def test_large_output_is_told_whole_and_kept_in_part(run: Runner) -> None:
    reported = 0

    class Count(Watch):
        def output(self, stream: Stream, data: bytes) -> None:
            nonlocal reported
            assert stream == "stdout"
            reported += len(data)

    size = 200_000_000
    end = run(f"import sys; sys.stdout.write('x' * {size})", watch=Count(), timeout=60)

    assert reported == size
    assert f"[{size - CAP} bytes cut]" in end.stdout


@only_others
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_script_that_attacks_its_keeper_gains_nothing(run: Runner, number: int) -> None:
    source = f"{FORKING}{DAEMON}os.kill(os.getppid(), {int(number)})\ntime.sleep(60)"
    watch = Watch()
    end = run(source, watch=watch, timeout=1.5)

    assert len(watch.printed["stdout"].split()) == 3
    assert run.living() == []
    if "Operation not permitted" in end.stderr:  # denied by Landlock
        assert end.exit_code == 1
    else:
        assert end.exit_code is None
        assert end.timed_out or end.error is not None


@only_root
def test_script_cannot_attack_its_keeper(run: Runner) -> None:
    source = """
        import os
        for pid in (os.getppid(), -1):
            try:
                os.kill(pid, 9)
            except OSError as error:
                print(type(error).__name__)
    """
    assert run(source).stdout.startswith("PermissionError\n")


# The channel


def test_checkpoint_is_given_to_the_next_attempt(run: Runner) -> None:
    source = """
        import nextfire_job
        before = nextfire_job.checkpoint()
        print(before)
        nextfire_job.save_checkpoint({"done": (before or {"done": 0})["done"] + 1})
    """
    watch = Watch()

    assert [run(source, watch=watch).stdout for _ in range(3)] == [
        "None\n",
        "{'done': 1}\n",
        "{'done': 2}\n",
    ]
    assert watch.saved == b'{"done":3}'


def test_last_result_counts(run: Runner) -> None:
    end = run("from nextfire_job import result; result(1); result({'ä': [None, 1.5]})")

    assert end.result == '{"ä":[null,1.5]}'.encode()


def test_result_is_kept_of_a_script_that_is_killed(run: Runner) -> None:
    end = run("import nextfire_job; nextfire_job.result(7)\n" + ENDLESS, timeout=1)

    assert (end.timed_out, end.result) == (True, b"7")


def test_what_is_not_kept_is_told(run: Runner) -> None:
    source = """
        import nextfire_job as n
        for value in (1, "x" * (1 << 20)):
            for keep in (n.save_checkpoint, n.result):
                try:
                    keep(value)
                    print("kept")
                except n.NotKeptError as error:
                    print(error)
    """
    watch = Watch()
    watch.refusal = "the lease is lost"
    end = run(source, watch=watch)

    assert end.result == b"1"
    assert end.stdout.splitlines() == [
        "the lease is lost",
        "kept",
        "the value has 1048578 bytes; the maximum is 1048576",
        "the value has 1048578 bytes; the maximum is 1048576",
    ]


ASK = """
import os, socket
channel = socket.socket(fileno=int(os.environ["NEXTFIRE_CHANNEL"]))
replies = channel.makefile("rb")
def ask(line):
    channel.sendall(line + b"\\n")
    print(replies.readline().decode()[:40])
"""


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1]",
        b"7",
        b'{"op": "checkpoint.save"}',
        b'{"op": "format"}',
        b'{"op": "result", "value": NaN}',
        b'{"op": "result", "value": 1e999}',
        b'{"op": "result", "value": "\\ud800"}',
        b'{"op": "result", "value": ' + b"9" * 5000 + b"}",
        b'{"op": "result", "value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xff\xfe",
    ],
    ids=range(12),
)
def test_request_that_is_none_is_answered(run: Runner, line: bytes) -> None:
    code = line if len(line) < 9000 else b""
    payload = line.decode("latin-1")
    end = run(
        ASK
        + "import sys\nline = sys.stdin.buffer.read().decode().encode('latin-1')\n"
        + 'ask(line)\nask(b\'{"op": "result", "value": 1}\')',
        payload=payload,
    )

    assert '"ok": false' in end.stdout.splitlines()[0], code
    assert (end.exit_code, end.result) == (0, b"1")


def test_flood_of_requests_holds_nobody_up(run: Runner) -> None:
    flood = ASK + 'while True: channel.sendall(b\'{"op": "checkpoint.load"}\\n\')'
    watch = Watch()
    watch.saved = b'"' + b"x" * 1_000_000 + b'"'
    end = run(flood, watch=watch, timeout=1)

    assert end.timed_out


def test_request_without_an_end_is_refused(run: Runner) -> None:
    endless = """
        try:
            while True: channel.sendall(b"x" * 100_000)
        except OSError:
            print("closed")
    """
    assert run(ASK + dedent(endless)).stdout == "closed\n"


def test_error_of_the_supervisor_in_a_save_ends_the_script(run: Runner) -> None:
    class Broken(Watch):
        def save(self, checkpoint: bytes) -> str | None:
            raise LookupError("supervisor", checkpoint)

    with pytest.raises(LookupError, match="supervisor"):
        run("import nextfire_job; nextfire_job.save_checkpoint(1)\n" + ENDLESS, watch=Broken())


# Start failures


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/etc/passwd", "/", "/bin/false"])
def test_interpreter_that_does_not_do_is_refused(interpreter: str) -> None:
    with pytest.raises(ValueError, match="Set NEXTFIRE_INTERPRETER to Python"):
        ProcessScriptRunner(interpreter=interpreter)


@pytest.mark.parametrize(
    ("says", "message"), [("2 7 18", "its version: 2 7 18"), ("", "its version: no output")]
)
def test_interpreter_that_is_no_python_of_today_is_refused_with_what_it_says(
    folder: Path, says: str, message: str
) -> None:
    other = folder / "other-python"
    other.write_text(f"#!/bin/sh\necho {says}\n")
    other.chmod(0o755)
    try:
        with pytest.raises(ValueError, match=message):
            ProcessScriptRunner(interpreter=str(other), temp_root=folder)
    finally:
        other.unlink()


@only_root
def test_interpreter_that_the_user_cannot_reach_is_refused(tmp_path: Path) -> None:
    python = tmp_path / "python3"  # pytest does not let other users enter the folder
    python.symlink_to("/usr/bin/env")
    with pytest.raises(ValueError, match=r"as script users.*Permission denied.*never run as"):
        ProcessScriptRunner(interpreter=str(python))


@only_root
def test_interpreter_is_looked_for_where_the_users_can_reach_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "_base_executable", str(tmp_path / "python3"))
    monkeypatch.setattr("nextfire.adapters.scripts.interpreters._OTHERS", ())
    with pytest.raises(ValueError, match="never run as root"):
        ProcessScriptRunner(temp_root=folder)


@only_root
def test_working_folder_that_the_users_cannot_reach_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandboxes, "probe_host", lambda _: HostFeatures(namespaces=False))
    with pytest.raises(ValueError, match="let all users enter"):
        ProcessScriptRunner(temp_root=tmp_path)


def test_environment_that_none_can_be(run: Runner) -> None:
    end = run("print(1)", environment={"NEXTFIRE_JOB": "a\0b"})

    assert end.exit_code is None
    assert end.error is not None
    assert "could not be started" in end.error


def test_no_place_to_work() -> None:
    path = Path(tempfile.mkdtemp())
    path.chmod(0o711)
    closed = ProcessScriptRunner(temp_root=path)
    path.rmdir()
    call = ScriptCall("a.py", b"print(1)", "", timedelta(seconds=9), "t")
    end = closed.run(call, Watch())

    assert end.exit_code is None
    assert end.error is not None
    assert f"{path} is writable" in end.error


long = pytest.mark.skipif(not LONG, reason="long: make test-long")


@only_root
@pytest.mark.parametrize("start", [pytest.param("exec", marks=long), "fork"])
@pytest.mark.parametrize("namespaces", ["yes", pytest.param("no", marks=long)])
@pytest.mark.parametrize("user", [pytest.param("root", marks=long), "another user"])
def test_all_of_this_on_another_host(user: str, namespaces: str, start: str) -> None:
    other = {"user": 65534, "group": 65534, "extra_groups": []}
    identity: dict[str, Any] = {} if user == "root" else other
    base = getattr(sys, "_base_executable", sys.executable)
    for python in (base, "/usr/local/bin/python3", "/usr/bin/python3"):
        paths = filter(None, sys.path)
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        command += ["-k", "not name and not cap and not output and not payload and not verdict"]
        command[-1] += " and not on_another_host"
        with suppress(OSError):
            end = subprocess.run(
                [*command, __file__, FORKED],
                cwd=ROOT,
                env={
                    "PYTHONPATH": os.pathsep.join(paths),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "PYTHONPYCACHEPREFIX": sys.pycache_prefix or "",
                    NAMESPACES: namespaces,
                    START: start,
                },
                **identity,
                capture_output=True,
                text=True,
                check=False,
            )
            if "No module named" not in end.stderr:
                assert end.returncode == 0, end.stdout[-5000:] + end.stderr[-5000:]
                return
    pytest.skip("no Python with pytest that another user can run")
