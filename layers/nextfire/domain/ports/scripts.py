"""Scripts: stored, fetched, run, and the files that runs leave."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from nextfire.dataclass import dataclass, field
from nextfire.domain.ids import RunFolder
from nextfire.domain.log import Stream
from nextfire.domain.masking import Masker
from nextfire.domain.ports.pages import Page
from nextfire.domain.script import (
    FetchedScript,
    ScriptKey,
    ScriptSource,
    ScriptVersion,
    StoredScript,
    Upload,
)


class ScriptStore(Protocol):
    """Reads uploaded scripts."""

    def fetch(self, source: ScriptSource) -> FetchedScript:
        """Return the script at *source*. For a pinned script: exactly the bytes with that digest,
        as long as a version that has them exists.

        Raises:
            NotFoundError: The script does not exist.
            InvalidInputError: The executor may not read it, or no version has the digest.
        """


class ScriptShelf(Protocol):
    """Uploads and lists the scripts of tenants, with their versions."""

    def upload(
        self,
        key: ScriptKey,
        *,
        size: int,
        sha256: bytes,
        signature: str | None,
        now: datetime,
        life: timedelta,
    ) -> Upload:
        """Return a URL that accepts a PUT of exactly *size* bytes with the digest *sha256*, as the
        script *key*, until *now* + *life*. *signature*: stored with the object.
        """

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        """Return *tenant*'s scripts, or those of one pool, by pool and name. *limit*: page size,
        ≥ 1; a page may have fewer although more follow, because objects that no handler can name
        are left out.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        """Return the versions of the script *key*, newest first. *limit*: page size, ≥ 1.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """


class RunFiles(Protocol):
    """Stores data that is too large for a run's record: logs, results, checkpoints."""

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        """Store *data* as the file *name* of *folder*, replacing an existing one."""

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        """Return the file *name* of *folder*; None if it does not exist."""


class Directive(Enum):
    """The instruction of a script's supervisor to the runner."""

    CONTINUE = "CONTINUE"
    CANCEL = "CANCEL"
    HAND_BACK = "HAND_BACK"
    LEASE_LOST = "LEASE_LOST"


class Supervisor(Protocol):
    """Receives reports of a runner while it runs a script, in the thread that called `run`.

    An exception that it raises ends the script and is raised by `run`.
    """

    def ask(self) -> Directive:
        """Whether the script may continue. Called several times a second."""

    def output(self, stream: Stream, data: bytes) -> None:
        """The script printed *data*: a chunk of any length, in order within its stream."""

    def checkpoint(self) -> bytes | None:
        """Return the latest checkpoint of this or an earlier attempt, as JSON, or None."""

    def save(self, checkpoint: bytes) -> str | None:
        """Store the JSON *checkpoint*. Returns None if stored, else the reason.

        Raises:
            UnavailableError: The store did not answer. A repetition does no harm.
        """


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A script to run.

    `name`: its file name, ending in ``.py`` or ``.zip``. `payload`: JSON, for standard input.
    `environment`: variables in addition to those that the runner sets for every script. `timeout`:
    measured from the start of the script, or from the unpacking of its archive. `tenant`: the owner
    of the packages it may use. `masker`: masks the secrets in `environment`. `upstream`: JSON about
    the runs of its parents; None: it has no parents.
    """

    name: str
    source: bytes
    payload: str
    timeout: timedelta
    tenant: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    masker: Masker = field(default_factory=Masker, compare=False)
    upstream: str | None = None


@dataclass(frozen=True, slots=True)
class ScriptExit:
    """How a script ended. `exit_code` is negative for a signal; None if it never started.

    `timed_out`, or a `stopped` other than CONTINUE: the runner ended it. `result`: the last result
    that it set, as JSON. `error`: why it did not start; `permanent`: a retry would fail, too;
    `unavailable`: the host lacked a resource to start it, such as disk space. `last_lines`: the end
    of stderr from the beginning of a line, if `stderr` is cut.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    stopped: Directive = Directive.CONTINUE
    result: bytes | None = None
    error: str | None = None
    permanent: bool = False
    unavailable: bool = False
    last_lines: str = ""


class ScriptRunner(Protocol):
    """Runs a script in a child process."""

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        """Run *call* until it exits, its timeout passes, or *supervisor* ends it.

        When it returns, the script and every process that it started have ended, and its folder is
        removed, or being removed if that takes long. `ScriptExit.stdout` and `stderr` are truncated
        at the runner's limit, with a notice; *supervisor* gets the whole output.

        The output, including what *supervisor* gets, and the result are masked by `call.masker`.
        Checkpoints are not: the next attempt reads them.
        """
