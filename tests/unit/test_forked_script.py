"""Forked scripts see and do what executed ones do."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from nextfire.adapters.scripts import launchers
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import ScriptCall, ScriptExit
from tests.places import open_folder
from tests.supervisors import Watch

PROBE = """
import sys
modules = sorted(sys.modules)
import gc, inspect, json, os, pathlib, signal, site, time
names = dict(globals())
own = pathlib.Path("/proc/self")
opened = {int(each.name): os.readlink(each).partition(":")[0] for each in own.glob("fd/*")
          if each.exists()}
channel = int(os.environ.pop("NEXTFIRE_CHANNEL"))
status = dict(line.split(":", 1) for line in (own / "status").read_text().splitlines())
print(json.dumps({
    "modules": modules,
    "main": sorted(name for name in names if name.startswith("__")),
    "main's values": [__name__, __doc__, __package__, __spec__, __file__],
    "main's annotations": globals().get("__annotations__", "none"),
    "its loader": [type(__loader__).__name__, __loader__.name, __loader__.path],
    "its builtins": __builtins__ is sys.modules["builtins"],
    "its source": inspect.getsource(sys.modules["__main__"])[:11],
    "arguments": [sys.argv, sys.orig_argv, (own / "cmdline").read_text().strip("\\0")],
    "path": sys.path,
    "sys": sorted(vars(sys)),
    "flags": repr(sys.flags),
    "hooks": [repr(sys.excepthook), len(sys.meta_path), len(sys.path_hooks)],
    "site": [site.USER_SITE, site.USER_BASE, site.ENABLE_USER_SITE],
    "builtins": sorted(vars(sys.modules["builtins"])),
    "garbage": [gc.isenabled(), gc.get_threshold()],
    "handlers": [repr(signal.getsignal(number)) for number in sorted(signal.valid_signals())],
    "mask": repr(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "wakeup": signal.set_wakeup_fd(-1),
    "descriptors": {n: kind for n, kind in opened.items() if n != channel},
    "channel": opened[channel],
    "environment": sorted(os.environ.items()),
    "streams": [
        [repr(each), each.errors, each.line_buffering, each.write_through, each.seekable()]
        for each in (sys.stdin, sys.stdout, sys.stderr)
    ],
    "standard": [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__],
    "input": sys.stdin.read(),
    "time": time.tzname,
    "status": {name: value for name, value in status.items() if name[:3] in ("Cap", "Sig", "Sec")
               or name in ("NoNewPrivs", "Umask", "Threads", "Name", "Groups", "NSpid")},
    "limits": (own / "limits").read_text(),
    "folder": os.getcwd(),
    "ids": [os.getpid() - os.getppid(), os.getsid(0) == os.getpid() == os.getpgrp()],
    "owns its files": (own / "environ").stat().st_uid == os.getuid() == os.geteuid(),
    "nice": os.nice(0),
    "oom score": (own / "oom_score_adj").read_text(),
}).replace(os.environ["HOME"], "HOME"))
"""

HOLDER = """
import atexit, signal, sys
class Holder:
    def __init__(self): self.file = open("/dev/stdout", "w"); self.file.write("held")
    def end(self, *_): self.file.write("more")
"""
ENDS = {
    "nothing": "",
    "a number": "import sys; print('x'); sys.exit(3)",
    "a large number": "import sys; sys.exit(259)",
    "a negative number": "import sys; sys.exit(-1)",
    "a huge number": "import sys; sys.exit(1 << 70)",
    "a truth value": "import sys; sys.exit(True)",
    "a text": "import sys; sys.exit('because')",
    "none": "import sys; sys.exit(None)",
    "a plain exit": "exit(4)",
    "at once": "import os; print('x'); os._exit(7)",
    "an error": "def f():\n    raise ValueError('é')\nf()",
    "a caused error": "try:\n    1 / 0\nexcept Exception as e:\n    raise KeyError('k') from e",
    "a group": "raise ExceptionGroup('g', [ValueError(1), TypeError(2)])",
    "bad syntax": "x = (\n",
    "bad indentation": "if 1:\nx\n",
    "another encoding": "# coding: latin-1\nprint(len('\u00e9'))",
    "a bad encoding": "# coding: nonsense\n",
    "a null character": "print(1)\0",
    "an interrupt": "raise KeyboardInterrupt",
    "a handler of interrupts": (
        "import os, signal, time\ntry:\n    os.kill(os.getpid(), signal.SIGINT); time.sleep(9)\n"
        "except KeyboardInterrupt:\n    print('handled')"
    ),
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "a crash": "import os; os.abort()",
    "functions of atexit": (
        "import atexit\natexit.register(print, 1)\natexit.register(print, 2)\nraise ValueError"
    ),
    "an exit in atexit": "import atexit, sys; atexit.register(sys.exit, 5)",
    "no atexit": "import atexit; atexit._clear(); print(1)",
    "a hook": "import sys; sys.excepthook = lambda *a: print(a[0], a[2].tb_lineno)\n1 / 0",
    "a hook that exits": "import sys; sys.excepthook = lambda *a: sys.exit(9)\n{}[1]",
    "an open file": "f = open('/dev/stdout', 'w'); f.write('written')",
    "an open file of a module": (
        "import email as m; m.f = open('/dev/stdout', 'w'); m.f.write('w')"
    ),
    "an open file in a cycle": (
        "class A: pass\na = A(); a.a = a; a.f = open('/dev/stdout', 'w'); a.f.write('w'); del a"
    ),
    "an open file of a function of atexit": HOLDER + "atexit.register(Holder().end)",
    "an open file of a handler of signals": HOLDER + "signal.signal(15, Holder().end)",
    "an open file of a context": (
        HOLDER + "import contextvars\nv = contextvars.ContextVar('v'); v.set(Holder()); del v"
    ),
    "an open file of a hook": HOLDER + "sys.unraisablehook = Holder().end",
    "an open file of a started module": HOLDER + "sys.mine = Holder()",
    "an open file of a library": (
        "import ctypes\nc = ctypes.CDLL(None); c.fopen.restype = ctypes.c_void_p\n"
        "c.fputs(b'held', ctypes.c_void_p(c.fopen(b'/dev/stdout', b'w')))"
    ),
    "atexit before the end": "import atexit; atexit._run_exitfuncs(); raise ValueError",
    "atexit before more": "import atexit; atexit._run_exitfuncs(); print('rest')",
    "an exit of another class": (
        "class E(SystemExit):\n    @property\n    def code(self): return 7\nraise E"
    ),
    "a lazy module": (
        "import importlib.util as u, sys\ns = u.find_spec('this')\n"
        "s.loader = u.LazyLoader(s.loader)\nsys.modules['this'] = m = u.module_from_spec(s)\n"
        "s.loader.exec_module(m)"
    ),
    "names of other types": "globals()[1] = 2; globals()[None] = 3",
    "no standard streams": "import sys; del sys.__stdout__, sys.__stdin__",
    "finalizers": (
        "class A:\n    def __init__(self, n): self.n = n\n"
        "    def __del__(self): print('end of', self.n)\n"
        "a = A('a'); _b = A('b'); c = A('c'); c.me = c\nimport json; json.d = A('d')\nA('e')"
    ),
    "a closed output": "import sys; sys.stdout.close()",
    "an output that fails": "import os, sys; os.close(1); print('x', end='')",
    "another output": "import io, sys; sys.stdout = open('/dev/stderr', 'w'); print('x')",
    "a thread": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()"
    ),
    "a failing thread": "import threading; threading.Thread(target=lambda: 1 / 0).start()",
    "a daemon": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(9,), daemon=True)"
        ".start()"
    ),
    "a fork": (
        "import os, sys\npid = os.fork()\nif not pid: sys.exit(6)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    ),
    "a fork that fails": (
        "import os\npid = os.fork()\nif not pid: raise ValueError\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    ),
    "processes": (
        "import multiprocessing as m\ndef f(x): return x * x\n"
        "if __name__ == '__main__':\n"
        "    for how in ('fork', 'spawn', 'forkserver'):\n"
        "        with m.get_context(how).Pool(1) as pool: print(pool.map(f, [2, 3]))"
    ),
    "a pickle": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
    "a data class": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nx: int = 1\n"
        "@dataclass\nclass A:\n    n: int\nprint(A(1), __annotations__)"
    ),
    "annotations": "import __main__\nx: int = 1\nprint(__main__.__annotations__)",
    "an event loop": (
        "import asyncio\nasync def f():\n    p = await asyncio.create_subprocess_exec('true')\n"
        "    print(await p.wait())\nasyncio.run(f())"
    ),
    "a foreign function": "import ctypes; print(ctypes.CDLL(None).getpid() > 0)",
    "modules": "import select, resource, struct, socket; print(socket.socket().family)",
    "the job's module": "import nextfire_job; print(nextfire_job.__file__[-15:])",
    "warnings": "import warnings; warnings.warn('w'); warnings.warn('d', DeprecationWarning)",
    "an unraisable error": "class A:\n    def __del__(self): 1 / 0\nA()",
    "random numbers": "import random; random.seed(1); print(random.random())",
    "a traceback": (
        "import sys, traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()"
    ),
}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with open_folder("test-forked-") as path:
        yield path


Run = Callable[..., ScriptExit]


def runner(folder: Path, often: int) -> Run:
    """Runs scripts. *often*: 1 to fork all of them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launchers, "OFTEN", often)
        it = ProcessScriptRunner(temp_root=folder)

    def run(source: str, **environment: str) -> ScriptExit:
        call = ScriptCall(
            "a.py", source.encode(), '{"a": 1}', timedelta(seconds=20), "acme", environment
        )
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(launchers, "OFTEN", often)
            return it.run(call, Watch())

    return run


@pytest.fixture(scope="module")
def executed(folder: Path) -> Run:
    return runner(folder, sys.maxsize)


@pytest.fixture(scope="module")
def forked(folder: Path) -> Run:
    return runner(folder, 1)


def is_fork(run: Run, source: str = "", **environment: str) -> bool:
    """Whether *run* forks scripts: the environment that a process started with stays visible."""
    shown = "print('NEXTFIRE_CHANNEL' in open('/proc/self/environ').read())"
    return run(source + shown, **environment).stdout == "False\n"


def test_only_one_of_them_forks(executed: Run, forked: Run) -> None:
    assert is_fork(forked)
    assert not is_fork(executed)


PLAIN = """
import atexit, os, sys
from nextfire.adapters.scripts.forked_script import ScriptEnd
for name in ("_contextvars", "_ctypes"):  # as `become_script` does
    sys.modules.pop(name, None)
atexit._clear()
atexit.register(print)
end = ScriptEnd({*sys.modules})
seen = [end._is_plain()]
for name in ("stdin", "stdout", "stderr"):
    usual = getattr(sys, name)
    setattr(sys, name, open(os.devnull, "r+"))
    seen.append(end._is_plain())
    setattr(sys, name, usual)
print(*seen)
"""


def test_only_a_script_that_left_the_streams_alone_ends_quickly() -> None:
    command = [sys.executable, "-c", PLAIN]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stdout.split() == ["True", "False", "False", "False"]


def test_signals_that_the_worker_ignores_are_not_ignored_by_its_scripts(folder: Path) -> None:
    """A shell lets commands in the background ignore SIGINT and SIGQUIT, `nohup` SIGHUP."""
    ignored = "print(*(line for line in open('/proc/self/status') if line.startswith('SigIgn')))"
    numbers = (signal.SIGQUIT, signal.SIGHUP, signal.SIGINT)
    before = [signal.signal(number, signal.SIG_IGN) for number in numbers]
    try:
        started = [runner(folder, often)(ignored).stdout for often in (sys.maxsize, 1)]
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

    assert started[0] == started[1]
    mask = int(started[0].split()[1], 16)
    assert not any(mask & 1 << (number - 1) for number in numbers)


def test_a_fork_sees_what_a_new_interpreter_shows(executed: Run, forked: Run) -> None:
    seen: list[dict[str, Any]] = []
    for run in (executed, forked):
        end = run(PROBE, MINE="1")
        assert end.exit_code == 0, end.stderr
        seen.append(json.loads(end.stdout))

    assert seen[1] == seen[0]


@pytest.mark.parametrize("case", ENDS)
def test_a_fork_ends_like_a_new_interpreter(executed: Run, forked: Run, case: str) -> None:
    ends = [run(ENDS[case]) for run in (executed, forked)]
    shown = [(end.exit_code, end.stdout, _comparable(end.stderr), end.error) for end in ends]

    assert shown[1] == shown[0]


def _comparable(text: str) -> str:
    """*text* without what differs between any two runs."""
    return re.sub("0x[0-9a-f]+|nextfire-sandbox-run-[^/]+", "", text)


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "TZ", "LC_ALL", "LD_PRELOAD", "PYTHONPATH"])
def test_variables_that_are_read_at_the_start_rule_a_fork_out(forked: Run, name: str) -> None:
    value = {"PYTHONHASHSEED": "7", "TZ": "Europe/Berlin", "LC_ALL": "C"}.get(name, "/nowhere")
    end = dedent(f"import os\nassert os.environ[{name!r}].endswith({value!r})\n")
    assert not is_fork(forked, end, **{name: value})


def test_forks_of_two_tenants_have_different_hash_seeds(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(launchers, "OFTEN", 1)
        it = ProcessScriptRunner(temp_root=folder)

        def seed(tenant: str) -> str:
            source = b"print(hash('nextfire'), id(None))"
            call = ScriptCall("a.py", source, "", timedelta(seconds=20), tenant)
            return it.run(call, Watch()).stdout

        first = seed("acme")
        assert seed("acme") == first  # as documented
        assert seed("other") != first
        patched.setattr(launchers, "SCRIPTS", 1)
        seed("third")
        assert len({seed("third"), seed("third"), seed("third")}) == 3
