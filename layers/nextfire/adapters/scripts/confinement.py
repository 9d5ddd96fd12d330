"""Confines a script's process before the script starts: namespaces, mounts, system calls, limits,
user. Runs in forks of the keeper, and in a probe when the executor starts.

Linux only. Uses few modules of the standard library and nothing else: imports delay every run.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

TYPE_CHECKING = False  # the typing module takes 5 ms
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _CLEAR_ALL = 47, 4
_CAP_VERSION_3 = struct.pack("=Ii", 0x20080522, 0)
"""Version of the structure, and 0 for the calling process."""
_NO_CAPABILITIES = bytes(24)
_SECCOMP_MODE_FILTER = 2
_CLONE_NEWNS, _CLONE_NEWIPC, _CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 32, 4096, 16384, 1 << 18
_MS_NOATIME, _MS_NODIRATIME, _MS_RELATIME, _ST_RELATIME = 1024, 2048, 1 << 21, 4096
_SAFE = _MS_NOSUID | _MS_NODEV
_COUNTED_PER_NAMESPACE = (5, 14)
"""First kernel version whose RLIMIT_NPROC counts the tasks of each user namespace separately."""

_ABSTRACT_SOCKETS, _SIGNALS = 1, 2

_libc = ctypes.CDLL(None, use_errno=True)
for _name_of_call in ("capset", "mount", "prctl", "setns", "syscall", "unshare"):
    getattr(_libc, _name_of_call)  # looked up once, not in each fork


class View:
    """Keys of a marshalled dict: the parts of the file system that are replaced for a script.

    `temporary`: the folder mounted at each path of `shared`, such as ``/tmp``. `hidden`: folders
    that appear empty. `writable` and `readable`: folders that stay visible inside them under their
    own paths; the latter are read-only.
    """

    TEMPORARY = "temporary"
    SHARED = "shared"
    HIDDEN = "hidden"
    WRITABLE = "writable"
    READABLE = "readable"


def prctl(option: int, value: int, pointer: object = 0) -> None:
    """Set an attribute of the calling process.

    Raises:
        OSError: The system call failed.
    """
    third = pointer or ctypes.c_ulong(0)
    zero = ctypes.c_ulong(0)
    _check(
        _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), third, zero, zero),
        f"prctl({option}, {value})",
    )


def drop_capabilities(*, executes: bool) -> None:
    """Do not pass capabilities on to the program.

    *executes*: whether this process will execute the program, which clears all but its ambient
    capabilities unless it is root. Otherwise this process runs the program itself.

    Raises:
        OSError: The system call failed.
    """
    prctl(_PR_CAP_AMBIENT, _CLEAR_ALL)
    if not executes:
        _check(_libc.capset(_CAP_VERSION_3, _NO_CAPABILITIES), "capset")


def enter_process_namespace() -> None:
    """Put future children of this process into a new PID namespace.

    The first child is process 1 of the namespace: when it ends, the kernel kills all others. A
    process that is not root also enters a new user namespace, in which it keeps its uid.

    Raises:
        OSError: The host does not allow namespaces.
    """
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        _unshare(_CLONE_NEWUSER)
        _write("/proc/self/setgroups", b"deny")
        _write("/proc/self/uid_map", b"%d %d 1" % (user, user))
        _write("/proc/self/gid_map", b"%d %d 1" % (group, group))
    _unshare(_CLONE_NEWPID)


def leave_process_namespace(namespace: int) -> None:
    """Put future children of this process into its own PID namespace, descriptor *namespace*.

    Reverts `enter_process_namespace`.

    Raises:
        OSError: The system call failed.
    """
    _check(_libc.setns(ctypes.c_int(namespace), ctypes.c_int(_CLONE_NEWPID)), "setns")


REPLACED = {
    "/dev/shm": ("tmpfs", b"mode=1777"),  # noqa: S108
    "/dev/mqueue": ("mqueue", None),
}
"""Folders of which a file namespace gets its own, empty ones: kind and options of the mount."""


def enter_file_namespace(view: dict) -> None:  # type: ignore[type-arg]
    """Give process 1 of a PID namespace its own mounts and its own System V IPC.

    Args:
        view: A dict with the keys of `View`; empty to keep all folders.

    Raises:
        OSError: The host does not allow it.
    """
    _unshare(_CLONE_NEWNS | _CLONE_NEWIPC)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    if view:
        _replace_folders(view)
    # Lists only processes of this namespace that belong to the script's user. Read-only: without
    # CAP_SYS_RESOURCE the executor cannot keep them from lowering their oom_score_adj otherwise.
    _mount("proc", "/proc", "proc", _SAFE | _MS_NOEXEC | _MS_RDONLY, b"hidepid=2")
    for path, (kind, options) in REPLACED.items():
        if os.path.isdir(path):
            _mount(kind, path, kind, _SAFE | _MS_NOEXEC, options)


def _replace_folders(view: dict) -> None:  # type: ignore[type-arg]
    """Mount over the shared and hidden folders, then remount the visible folders inside them.

    The visible folders are opened first: after the first mount their paths lead elsewhere.
    """
    os.umask(0o022)  # independent of the executor's umask: the script enters folders made here
    modes = dict.fromkeys(view[View.READABLE], _MS_RDONLY)
    modes |= dict.fromkeys(view[View.WRITABLE], 0)
    kept = [(path, os.open(path, os.O_PATH | os.O_CLOEXEC), mode) for path, mode in modes.items()]
    temporary = os.open(view[View.TEMPORARY], os.O_PATH | os.O_CLOEXEC)
    for path in view[View.HIDDEN]:
        _mount("tmpfs", path, "tmpfs", _SAFE | _MS_NOEXEC, b"mode=755,size=64k")
    for path in view[View.SHARED]:
        _mount(_name(temporary), path, None, _MS_BIND)
    os.close(temporary)
    for path, descriptor, mode in sorted(kept):
        if os.path.isdir(_name(descriptor)):
            os.makedirs(path, mode=0o755, exist_ok=True)
            _mount(_name(descriptor), path, None, _MS_BIND)
            if mode:
                # The kernel ignores flags of a bind mount until a remount, which must repeat the
                # flags that the mount has.
                _mount(None, path, None, _MS_BIND | _MS_REMOUNT | mode | _flags(path))
        os.close(descriptor)
    for path in view[View.HIDDEN]:
        _mount(None, path, None, _MS_REMOUNT | _MS_RDONLY | _SAFE | _MS_NOEXEC, b"mode=755")


def _flags(path: str) -> int:
    """The flags of the mount at *path*. An unprivileged remount must keep all of them."""
    found = os.statvfs(path).f_flag
    relative = _MS_RELATIME if found & _ST_RELATIME else 0
    return found & (_SAFE | _MS_NOEXEC | _MS_NOATIME | _MS_NODIRATIME) | relative


def _name(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def enter_network(descriptor: int) -> None:
    """Enter the network namespace of *descriptor*.

    Raises:
        OSError: The system call failed.
    """
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(_CLONE_NEWNET)), "setns")


def leave_network() -> None:
    """Move the calling thread into a new network namespace, in which no interface is up.

    Raises:
        OSError: The host does not allow network namespaces.
    """
    _unshare(_CLONE_NEWNET)


def become_user(ids: tuple[int, int, int, Sequence[int]]) -> None:
    """Become a script user. *ids*: uid, warden uid (unused here), gid, supplementary gids.

    Raises:
        OSError: The executor lacks the capabilities.
    """
    user, _, group, groups = ids
    try:
        os.setgroups(groups)
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    except OSError as error:
        raise OSError(f"user: cannot become user {user}: {error}") from error


def set_limits(limits: Iterable[tuple[int, int]]) -> None:
    """Set resource limits. *limits*: pairs of a resource and a value for its soft and hard limit.

    A value above the current hard limit is lowered to it.

    Raises:
        OSError: The system call failed.
    """
    for kind, bound in limits:
        _, most = resource.getrlimit(kind)
        if most != resource.RLIM_INFINITY:
            bound = min(bound, most)  # noqa: PLW2901
        resource.setrlimit(kind, (bound, bound))


def install_filter(program: bytes) -> None:
    """Install the seccomp filter *program* for this process and its descendants.

    Also sets `no_new_privs`: programs that the process starts gain no privileges.

    Args:
        program: BPF instructions; empty to install no filter.

    Raises:
        OSError: The system call failed.
    """
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _isolate_from_others()
    if program:
        # A buffer of ctypes would be a new type, which takes longer than the system call.
        address = ctypes.cast(ctypes.c_char_p(program), ctypes.c_void_p).value
        described = struct.pack("@HP", len(program) // 8, address)
        prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.c_char_p(described))


def _isolate_from_others() -> None:
    """Isolate from processes of the same user, if the kernel has Landlock ABI 6 (Linux 6.12).

    This process and its descendants can no longer signal other processes, inspect them, or connect
    to their abstract sockets. System calls: 444 is ``landlock_create_ruleset``, 446 is
    ``landlock_restrict_self``.
    """
    rules = struct.pack("=QQQ", 0, 0, _ABSTRACT_SOCKETS | _SIGNALS)
    descriptor = _libc.syscall(444, rules, len(rules), 0)  # fails on an older kernel
    if descriptor >= 0:
        _libc.syscall(446, descriptor, 0)
        os.close(descriptor)


def counts_tasks_per_namespace() -> bool:
    """Whether RLIMIT_NPROC counts the tasks of each user namespace separately."""
    release = os.uname().release.split(".")
    return (int(release[0]), int("".join(filter(str.isdigit, release[1])))) >= (
        _COUNTED_PER_NAMESPACE
    )


def _unshare(flags: int) -> None:
    _check(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: bytes | None = None
) -> None:
    arguments = [text and text.encode() for text in (source, target, kind)]
    _check(_libc.mount(*arguments, ctypes.c_ulong(flags), options), f"mount {target}")


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, data)
    finally:
        os.close(descriptor)


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


NO_NAMESPACES, NO_FILTER = 1, 2
_ALLOW_ALL = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)


def main(_: list[str]) -> None:
    """Probe the host. Exit code: `NO_NAMESPACES`, `NO_FILTER`, their sum, or 0 if all work."""
    denied = 0
    if not _works_in_child(_try_namespaces):
        denied |= NO_NAMESPACES
    if not _works_in_child(_try_filter):
        denied |= NO_FILTER
    os._exit(denied)


def _try_namespaces() -> None:
    enter_process_namespace()
    if not _works_in_child(_try_mounts):
        raise OSError("no mounts")


def _try_mounts() -> None:
    enter_file_namespace({})


def _try_filter() -> None:
    install_filter(_ALLOW_ALL)


def _works_in_child(work: Callable[[], None]) -> bool:
    child = os.fork()
    if not child:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
