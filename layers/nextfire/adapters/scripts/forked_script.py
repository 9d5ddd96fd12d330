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
from _io import BufferedRandom, BufferedWriter, TextIOWrapper
from _weakref import ref

TYPE_CHECKING = False  # the typing module takes 5 ms
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from types import ModuleType, TracebackType
    from typing import Any

BOOT = """
import marshal, os, sys
usual = {*sys.modules} - {"linecache"}
__name__ = "nextfire"
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
except SystemExit as error:
    end.exits(error)
    raise
except BaseException as error:
    end.fails(error)
    raise
end.exits(SystemExit())
"""
"""Source of the bootstrap: loads a file of modules, in order, and runs `main` of the last one. It
returns in the fork that is the script. A new interpreter reports what is wrong with a script.
"""

_WRITERS = (BufferedWriter, BufferedRandom, TextIOWrapper)
_STREAMS = ("stdin", "stdout", "stderr")
_IGNORED = {_signal.SIGPIPE, _signal.SIGXFSZ}
"""Signals that a new interpreter ignores. It has a handler for SIGINT, and none for all others."""
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
    for number in _signal.valid_signals() - _IGNORED:
        if _signal.getsignal(number) not in {_signal.SIG_DFL, None}:
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
        __builtins__=sys.modules["builtins"],
        __file__=path,
    )
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    if sys.version_info < (3, 15):
        main.__dict__["__cached__"] = None
    return main.__dict__


class ScriptEnd:
    """Ends the process of a plain script like the interpreter does, but quicker: it destroys the
    modules of the script and leaves alone those of the launcher, whose memory it would have to
    copy. The interpreter ends any other script.
    """

    def __init__(self, usual: Collection[str]) -> None:
        self._usual = usual
        self._code: int | None = None
        """The exit code; None: the interpreter must end the process."""

    def exits(self, by: SystemExit) -> None:
        """Note that the script ended, or called `sys.exit`: *by* has the exit code."""
        code = by.code if type(by) is SystemExit else by
        if code is None or isinstance(code, str):
            self._code = 0 if code is None else 1
        elif type(code) is int and abs(code) < 1 << 31:
            self._code = code & 0xFF

    def fails(self, error: BaseException) -> None:
        """Note that *error* ends the script. Hides the line of `BOOT` in its traceback."""
        hook = getattr(sys, "excepthook", None)
        if hook is sys.__excepthook__ and not isinstance(error, KeyboardInterrupt):
            self._code = 1
        if hook is None:
            return

        def report(kind: type[BaseException], error: BaseException, trace: TracebackType) -> None:
            sys.excepthook, sys.last_traceback = hook, trace.tb_next
            hook(kind, error.with_traceback(trace.tb_next), trace.tb_next)

        sys.excepthook = report  # type: ignore[assignment]

    def leave(self) -> None:
        """Runs after the script's threads have ended; it is the last function of `atexit`."""
        if self._code is None or not self._is_plain() or not _flush():
            return
        for name in ("last_type", "last_value", "last_traceback", "last_exc"):
            if hasattr(sys, name):
                setattr(sys, name, None)
        gc.collect()
        modules = [ref(sys.modules.pop(name)) for name in self._modules()]
        gc.collect()
        for left in reversed(modules):
            module = left()
            if module is not None:
                _clear(module.__dict__)
        gc.collect()
        if _flush_files() and _flush():
            os._exit(self._code)

    def _modules(self) -> list[str]:
        """The names of the script's modules."""
        return [name for name in sys.modules if name not in self._usual or name == "__main__"]

    def _is_plain(self) -> bool:
        """Whether what the script made belongs to its modules only: it has no thread, no function
        of `atexit`, no handler of a signal, no hook, and no extension module that is not Python's.
        """
        handlers = {*map(_signal.getsignal, _signal.valid_signals())}
        modules = [sys.modules[name] for name in self._modules()]
        return (
            atexit._ncallbacks() == 1  # noqa: SLF001
            and len(sys._current_frames()) == 1  # noqa: SLF001
            and handlers <= {_signal.SIG_DFL, _signal.SIG_IGN, _signal.default_int_handler, None}
            and (sys.gettrace(), sys.getprofile()) == (None, None)
            and sys.unraisablehook is sys.__unraisablehook__
            and all(vars(sys).get(each) is vars(sys).get(f"__{each}__") for each in _STREAMS)
            and all(type(each) is type(sys) for each in modules)
            and not {"_ctypes", "_contextvars"} & sys.modules.keys()
            and not any(map(_is_foreign, modules))
        )


def _is_foreign(module: ModuleType) -> bool:
    """Whether *module* is an extension module that does not belong to Python."""
    file = str(module.__dict__.get("__file__"))
    return file.endswith(".so") and "/lib-dynload/" not in file


def _clear(namespace: dict[str, Any]) -> None:
    """Destroy private objects first, then the others, in the order of the interpreter."""
    names = [name for name in namespace if type(name) is str and name != "__builtins__"]
    private = [name for name in names if name[:1] == "_" and name[1:2] != "_"]
    for name in (*private, *names):
        namespace[name] = None


def _flush_files() -> bool:
    """Flush the files that are still open. False if that fails."""
    try:
        for each in gc.get_objects():  # without those that the launcher had
            if isinstance(each, _WRITERS) and not each.closed:
                each.flush()
    except Exception:  # noqa: BLE001 - of the script's files
        return False
    return True


def _flush() -> bool:
    """Write what the standard streams hold. False if that fails; the interpreter reports it."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:  # noqa: BLE001 - of the script's streams
        return False
    return True
