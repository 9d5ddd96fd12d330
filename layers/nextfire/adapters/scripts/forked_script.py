"""Turns a fork of a started interpreter into a script, which sees what a new interpreter shows it.

A launcher that was started by `BOOT` is an interpreter with the flags, streams and environment of a
script. The fork of its keeper raises `ForkedScript`, which unwinds the launcher's calls; then
`become_script` removes what the launcher left in the process, and `BOOT` runs the script.

What a script can tell apart from ``python -u -P script.py`` is in docs/operate/security.md.

Uses few modules of the standard library and nothing else: it is part of the launcher.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import atexit
import ctypes
import gc
import os
import sys
from _weakref import ref

TYPE_CHECKING = False  # the typing module takes 5 ms
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import TracebackType
    from typing import Any

BOOT = """
import marshal, os, sys
usual = {*sys.modules} - {"linecache"}
for name, source in marshal.loads(os.pread(int(sys.argv[1]), 1 << 20, 0)):
    module = sys.modules[name] = type(sys)(name)
    exec(compile(source, name, "exec"), module.__dict__)
main, end = module.main(sys.argv[1:], usual)
del marshal, usual, module, source, name
try:
    with open(sys.argv[0], "rb") as script:
        script = compile(script.read(), sys.argv[0], "exec")
except Exception:
    os.execv(sys.executable, sys.orig_argv)
try:
    exec(script, main)
except BaseException as error:
    end.caused_by(error)
    raise
"""
"""Source of the bootstrap: loads a file of modules, in order, and runs `main` of the last one. It
returns in the fork that is the script. A new interpreter reports what is wrong with a script.
"""

_ENDS = 1 << 16
"""No process has a descriptor of this number: an executor may open fewer files."""


class ForkedScript(BaseException):
    """Raised in a fork of a keeper that must run a script. Not an error."""

    def __init__(self, program: Sequence[str], channel: int) -> None:
        """Build. *program*: interpreter, flags and script. *channel*: the descriptor to keep."""
        super().__init__()
        self.program = program
        self.channel = channel


def become_script(script: ForkedScript, usual: Collection[str]) -> tuple[dict[str, Any], ScriptEnd]:
    """Give this process the state of a new interpreter.

    Closes all descriptors but the standard streams and the script's channel. When one of them
    closes, the keeper reports that the script has started.

    Args:
        script: Raised in this process. The launcher's calls have ended.
        usual: The names of the modules that a new interpreter has loaded.

    Returns:
        The namespace of the script's module `__main__`, and its end.
    """
    _signal.set_wakeup_fd(-1)
    for number in (_signal.SIGCHLD, _signal.SIGTERM, _signal.SIGHUP):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    path = script.program[-1]
    sys.argv = [path]
    sys.orig_argv = [*script.program]
    _show_arguments("\0".join(script.program))
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.path_importer_cache.clear()
    between = script.channel if script.channel >= 0 else _ENDS
    os.closerange(3, between)
    os.closerange(between + 1, _ENDS)
    for name in {*sys.modules} - {*usual}:
        del sys.modules[name]
    end = ScriptEnd(usual)
    atexit.register(end.leave)
    gc.enable()
    return _main_namespace(path), end


def replace_environment(environment: dict[str, str]) -> None:
    """Make *environment* the variables of this process. Has all variables of the launcher.

    Raises:
        ValueError: A name or value contains a null character, or a name an equals sign.
    """
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    site = sys.modules["site"]
    if site.ENABLE_USER_SITE:  # the user's folder; it is new, so it has no packages
        base = environment["HOME"] + "/.local"
        packages = "{}/lib/python{}.{}/site-packages".format(base, *sys.version_info)
        site.__dict__.update(USER_BASE=base, USER_SITE=packages)


def _show_arguments(arguments: str) -> None:
    """Let the process table show *arguments* instead of the launcher's, which are longer."""
    try:
        descriptor = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # the host hides it
    fields = os.read(descriptor, 4096).rpartition(b")")[2].split()
    os.close(descriptor)
    first, end = int(fields[45]), int(fields[46])
    shown = os.fsencode(arguments)[: end - first - 1]
    ctypes.memset(first, 0, end - first)
    ctypes.memmove(first, shown, len(shown))


def _main_namespace(path: str) -> dict[str, Any]:
    main = sys.modules["__main__"] = type(sys)("__main__")
    loader = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", path)
    main.__dict__.update(
        __loader__=loader,
        __annotations__={},
        __builtins__=sys.modules["builtins"],
        __file__=path,
        __cached__=None,
    )
    return main.__dict__


class ScriptEnd:
    """Ends the process of a script like the interpreter does, but quicker: it destroys the modules
    of the script and leaves alone those of the launcher, whose memory it would have to copy.
    """

    def __init__(self, usual: Collection[str]) -> None:
        self._usual = usual
        self._code: int | None = 0
        """None: the interpreter ends by itself."""

    def caused_by(self, error: BaseException) -> None:
        """Note that *error* ends the script. Hides the line of `BOOT` in its traceback."""
        hook = sys.excepthook
        self._code = None
        if isinstance(error, SystemExit):
            code = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
            self._code = code if abs(code) < 1 << 31 else None
        elif hook is sys.__excepthook__ and not isinstance(error, KeyboardInterrupt):
            self._code = 1

        def report(kind: type[BaseException], error: BaseException, trace: TracebackType) -> None:
            sys.excepthook, sys.last_traceback = hook, trace.tb_next
            hook(kind, error.with_traceback(trace.tb_next), trace.tb_next)

        sys.excepthook = report  # type: ignore[assignment]

    def leave(self) -> None:
        """Runs after the script's threads and its own functions of `atexit`."""
        if self._code is None or not _flush():
            return
        sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                setattr(sys, name, None)
        gc.collect()
        theirs = [name for name in sys.modules if name not in self._usual or name == "__main__"]
        popped = (sys.modules.pop(name) for name in theirs)
        modules = [ref(each) for each in popped if isinstance(each, type(sys))]
        gc.collect()
        for left in reversed(modules):
            module = left()
            if module is not None:
                _clear(module.__dict__)
        gc.collect()
        if _flush():
            os._exit(self._code & 0xFF)


def _clear(namespace: dict[str, Any]) -> None:
    """Destroy private objects first, then the others, in the order of the interpreter."""
    for private in (True, False):
        for name in [*namespace]:
            if (name[:1] == "_" and name[1:2] != "_") is private and name != "__builtins__":
                namespace[name] = None


def _flush() -> bool:
    """Write what the standard streams hold. False if that fails; the interpreter reports it."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:  # noqa: BLE001 - of the script's streams
        return False
    return True
