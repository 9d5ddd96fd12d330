"""The script runner, with real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from nextfire.adapters import launcher
from nextfire.adapters.script_runner import ProcessScriptRunner
from nextfire.domain.ports import ScriptCall, ScriptExit, Verdict

ROOT = Path(__file__).parents[2]
CAP = 1000
ENDLESS = "import time\nwhile True: time.sleep(1)\n"
FORKING = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), child.pid)
"""
"""A script that ignores SIGTERM and has a child that does too; both are told by number."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the runner makes its working folders."""
    path = tmp_path / "work"
    path.mkdir()
    return path


class Runner:
    """A runner with a small cap and a short grace, and a script of a few lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(
        self,
        source: str,
        *,
        ask: Callable[[], Verdict] = lambda: Verdict.GO_ON,
        payload: str = "{}",
        timeout: float = 20,
        grace: float = 0.3,
        name: str = "script",
        context: Mapping[str, str] | None = None,
        interpreter: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> ScriptExit:
        runner = ProcessScriptRunner(
            interpreter=interpreter,
            output_cap=CAP,
            grace=timedelta(seconds=grace),
            environment=environment or {},
            limits=limits or {},
            temp_root=self._folder,
        )
        call = ScriptCall(
            name, dedent(source).encode(), payload, timedelta(seconds=timeout), context or {}
        )
        return runner.run(call, ask)


@pytest.fixture
def run(folder: Path) -> Iterator[Runner]:
    yield Runner(folder)
    assert list(folder.iterdir()) == []  # whatever happened


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not reaped does not."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    return False


def after(seconds: float, verdict: Verdict) -> Callable[[], Verdict]:
    start = time.monotonic()
    return lambda: verdict if time.monotonic() - start > seconds else Verdict.GO_ON


def descriptors() -> list[str]:
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


def eventually(condition: Callable[[], bool], within: float = 5) -> bool:
    until = time.monotonic() + within
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


# What a script gets


def test_script_gets_payload_and_context(run: Runner) -> None:
    source = """
        import json, os, sys
        print(json.load(sys.stdin)["to"], os.environ["NEXTFIRE_ATTEMPT"])
    """
    end = run(source, payload='{"to": "Köln"}', context={"NEXTFIRE_ATTEMPT": "2"})

    assert end == ScriptExit(0, "Köln 2\n", "")


def test_environment_holds_nothing_of_the_executor(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "NEXTFIRE_RUNS_TABLE", "PYTHONPATH"):
        monkeypatch.setenv(name, "/secret")
    end = run(
        "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))",
        environment={"PATH": "/opt/bin:/bin"},
        context={"NEXTFIRE_RUN_ID": "r1", "HOME": "/root"},
    )
    environment, cwd = json.loads(end.stdout)

    assert environment == {
        "PATH": "/opt/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
        "HOME": cwd,
        "TMPDIR": str(Path(cwd, "tmp")),
        "NEXTFIRE_RUN_ID": "r1",
    }


def test_script_has_standard_streams_only(run: Runner) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        end = run("import os; print(sorted(map(int, os.listdir('/proc/self/fd'))))")
    finally:
        os.close(reader)
        os.close(writer)

    assert end.stdout == "[0, 1, 2, 3]\n"  # 3 is the listing's own


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
    assert Path(cwd).parent == folder
    assert Path(temporary).parent == Path(cwd) / "tmp"
    assert script == f"{cwd}/gen_voice.py"


@pytest.mark.parametrize("name", ["json", "..", "", "-c", "/", "a" * 300, "böse\n\0.py"])
def test_any_name_will_do(run: Runner, name: str) -> None:
    end = run("import json; print(json.dumps(1))", name=name)

    assert end == ScriptExit(0, "1\n", "")


def test_limits(run: Runner) -> None:
    source = """
        from resource import *
        print(getrlimit(RLIMIT_CORE), getrlimit(RLIMIT_NOFILE), getrlimit(RLIMIT_CPU)[0])
    """
    hard = 2**40  # beyond what the parent has of files; no reason to fail
    end = run(source, limits={"RLIMIT_NOFILE": 50, "RLIMIT_CPU": 33})
    beyond = run(source, limits={"RLIMIT_NOFILE": hard})

    assert end.stdout == "(0, 0) (50, 50) 33\n"
    assert beyond.exit_code == 0


@pytest.mark.parametrize("limits", [{"RLIMIT_X": 1}, {"getrusage": 1}, {"RLIMIT_AS": -1}])
def test_limits_that_do_not_exist_are_refused(limits: Mapping[str, int]) -> None:
    with pytest.raises(ValueError, match="give names of the resource module"):
        ProcessScriptRunner(limits=limits)


def test_cap_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 bytes"):
        ProcessScriptRunner(output_cap=1)


# How it ends by itself


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


def test_exit_code_that_somebody_else_took_is_not_success(run: Runner) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps
    try:
        end = run("import time; time.sleep(0.3); raise SystemExit(1)")
    finally:
        signal.signal(signal.SIGCHLD, before)

    assert end.exit_code is None
    assert end.error is not None
    assert "SIGCHLD" in end.error


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

    def ask() -> Verdict:
        time.sleep(0.8)
        return Verdict.GO_ON

    assert f"[{1_000_000 - CAP} bytes cut]" in run(source, ask=ask).stdout


def test_binary_output(run: Runner) -> None:
    end = run(r"import sys; sys.stdout.buffer.write(b'a\x00\xff\xc3\xa4\xf0')")

    assert end.stdout == "a\0?ä?"  # each at most as long as what it stands for


def test_output_before_the_end_is_kept_when_it_is_killed(run: Runner) -> None:
    assert run("print('step 1')\n" + ENDLESS, timeout=0.5).stdout == "step 1\n"


# How it is ended


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
    end = run(source, timeout=0.5, grace=10)

    assert end == ScriptExit(5, "tidied\n", "", timed_out=True)
    assert 0.5 <= time.monotonic() - started < 2


def test_timeout_kills_the_group_when_its_grace_is_over(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING + ENDLESS, timeout=0.6, grace=0.4)
    took = time.monotonic() - started

    assert (end.timed_out, end.stopped, end.exit_code) == (True, Verdict.GO_ON, -signal.SIGKILL)
    assert 1 <= took < 3
    assert len(end.stdout.split()) == 2
    assert [pid for pid in end.stdout.split() if alive(int(pid))] == []


@pytest.mark.parametrize("verdict", [Verdict.CANCEL, Verdict.HAND_BACK])
def test_verdict_ends_the_script_by_sigterm(run: Runner, verdict: Verdict) -> None:
    source = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n" + ENDLESS
    end = run(source, ask=after(0.5, verdict), grace=10)

    assert end == ScriptExit(7, "", "", stopped=verdict)


def test_verdict_is_enforced_when_its_grace_is_over(run: Runner) -> None:
    end = run(FORKING + ENDLESS, ask=after(0.5, Verdict.CANCEL))

    assert (end.stopped, end.timed_out, end.exit_code) == (Verdict.CANCEL, False, -signal.SIGKILL)
    assert [pid for pid in end.stdout.split() if alive(int(pid))] == []


def test_lost_lease_kills_at_once(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING + ENDLESS, ask=after(0.5, Verdict.LEASE_LOST), grace=30)

    assert (end.stopped, end.exit_code) == (Verdict.LEASE_LOST, -signal.SIGKILL)
    assert time.monotonic() - started < 3
    assert [pid for pid in end.stdout.split() if alive(int(pid))] == []


def test_lease_lost_within_the_grace_kills_at_once(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING + ENDLESS, timeout=0.4, ask=after(0.9, Verdict.LEASE_LOST), grace=30)

    assert (end.timed_out, end.stopped) == (True, Verdict.LEASE_LOST)
    assert time.monotonic() - started < 3


def test_first_cause_is_told(run: Runner) -> None:
    end = run(FORKING + ENDLESS, timeout=0.4, ask=after(0.5, Verdict.CANCEL), grace=0.6)

    assert (end.timed_out, end.stopped) == (True, Verdict.GO_ON)


def test_error_of_the_supervisor_leaves_no_process(run: Runner, tmp_path: Path) -> None:
    pids = tmp_path / "pids"

    def ask() -> Verdict:
        if pids.exists() and pids.read_text().endswith("\n"):
            raise LookupError("supervisor")
        return Verdict.GO_ON

    with pytest.raises(LookupError, match="supervisor"):
        run(
            FORKING + f"print(os.getpid(), child.pid, file=open('{pids}', 'w'))\n" + ENDLESS,
            ask=ask,
        )
    assert [pid for pid in pids.read_text().split() if alive(int(pid))] == []


def test_supervisor_is_asked_several_times_a_second_and_waiting_is_cheap(run: Runner) -> None:
    asked: list[float] = []

    def ask() -> Verdict:
        asked.append(time.monotonic())
        return Verdict.GO_ON

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


# What is left behind


def test_background_process_ends_with_the_script(run: Runner) -> None:
    started = time.monotonic()
    end = run(FORKING)
    _, grandchild = map(int, end.stdout.split())

    assert (end.exit_code, end.timed_out) == (0, False)
    assert not alive(grandchild)
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
    assert [pid for pid in end.stdout.split() if alive(int(pid))] == []


def test_process_that_left_the_group_does_not_hold_the_run_up(run: Runner) -> None:
    source = """
        import subprocess, sys
        sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
        print(subprocess.Popen(sleeper, start_new_session=True).pid)
    """
    started = time.monotonic()
    end = run(source)
    os.kill(int(end.stdout), signal.SIGKILL)  # it escaped, as the docstring says

    assert end.exit_code == 0
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "mess",
    [
        "os.makedirs('a/b'); open('a/b/c', 'w'); os.chmod('a/b', 0); os.chmod('a', 0)",
        "os.chmod('.', 0)",
        "[(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]",
        "os.symlink('/etc', 'etc'); os.mkfifo('pipe')",
    ],
    ids=["closed folders", "closed itself", "deep", "links"],
)
def test_working_folder_is_removed(run: Runner, mess: str) -> None:
    assert run(f"import os; {mess}").exit_code == 0  # and the fixture looks


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
    run("print(1)", interpreter="/no/such/python")

    assert descriptors() == before


WORKER = """
import sys
from datetime import timedelta
from pathlib import Path
from nextfire.adapters.script_runner import ProcessScriptRunner
from nextfire.domain.ports import ScriptCall, Verdict

source = f"import os, time; print(os.getpid(), file=open({sys.argv[2]!r}, 'w')); time.sleep(60)"
call = ScriptCall("script", source.encode(), "{}", timedelta(minutes=1))
ProcessScriptRunner(temp_root=Path(sys.argv[1])).run(call, lambda: Verdict.GO_ON)
"""


def test_script_dies_with_its_worker(folder: Path, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, folder, told], env={"PYTHONPATH": str(ROOT / "layers")}
    )
    assert eventually(lambda: told.exists() and told.read_text().endswith("\n"), within=20)
    script = int(told.read_text())
    assert alive(script)
    worker.kill()
    worker.wait()

    assert eventually(lambda: not alive(script))


def test_script_does_not_start_when_its_worker_died_first(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    reader, report = os.pipe()
    not_our_parent = "1" if os.getpid() != 1 else "2"
    command = [sys.executable, "-I", "-S", launcher.__file__, not_our_parent, str(report)]
    end = subprocess.run([*command, "--", "/bin/touch", trace], pass_fds=[report], check=False)
    os.close(report)
    with os.fdopen(reader, "rb") as stream:
        assert stream.read() == b""
    assert end.returncode == 0
    assert not trace.exists()


UNDUMPABLE = """
import os, sys
from nextfire.adapters.script_runner import ProcessScriptRunner

if os.geteuid() == 0:
    os.setresuid(65534, 65534, 65534)
    from nextfire.adapters import launcher
    launcher.prctl(launcher.PR_SET_DUMPABLE, 1)  # the change of user took it away
environ = f"/proc/{os.getpid()}/environ"

def readable():
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    try:
        open(environ, "rb").read()
    except PermissionError:
        os._exit(1)
    os._exit(0)

before = readable()
ProcessScriptRunner()
print(before, readable())
"""


def test_scripts_cannot_read_the_environment_of_the_executor() -> None:
    end = subprocess.run(
        [sys.executable, "-c", UNDUMPABLE],
        env={"PYTHONPATH": str(ROOT / "layers")},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (end.stdout, end.stderr) == ("True False\n", "")


# When it cannot start


@pytest.mark.parametrize("interpreter", ["/no/such/python", "/etc/passwd", "/"])
def test_interpreter_that_is_missing(run: Runner, interpreter: str) -> None:
    end = run("print(1)", interpreter=interpreter)

    assert (end.exit_code, end.stdout, end.stderr) == (None, "", "")
    assert end.error is not None
    assert f"Check that the interpreter {interpreter} is there" in end.error


@pytest.mark.parametrize("interpreter", ["/bin/false", "/bin/true"])
def test_interpreter_that_is_no_python(run: Runner, interpreter: str) -> None:
    end = run("print(1)", interpreter=interpreter)

    assert end.exit_code is None
    assert end.error is not None
    assert "before it reached the script" in end.error


def test_context_that_no_environment_can_hold(run: Runner) -> None:
    end = run("print(1)", context={"NEXTFIRE_JOB": "a\0b"})

    assert end.exit_code is None
    assert end.error is not None
    assert "could not be started" in end.error


def test_no_place_to_work(tmp_path: Path) -> None:
    end = Runner(tmp_path / "missing")("print(1)")

    assert end.exit_code is None
    assert end.error is not None
    assert "missing can be written" in end.error
