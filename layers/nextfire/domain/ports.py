"""What the use cases need from outside. Each docstring is the contract that every adapter and fake
is held to.

All of them raise `UnavailableError` where the store or queue refused or did not answer:
the request may or may not have happened, and doing it again is harmless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Generic, Protocol, TypeVar

from nextfire.domain.audit import Audit
from nextfire.domain.chain import Batch
from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry
from nextfire.domain.events import Event
from nextfire.domain.ids import JobKey, RunFolder, RunKey
from nextfire.domain.job import Job, ParameterReference, SecretReference
from nextfire.domain.keys import ApiKey
from nextfire.domain.log import Stream
from nextfire.domain.masking import Masker
from nextfire.domain.message import RunMessage
from nextfire.domain.request_limits import RequestLimit, Taken
from nextfire.domain.run import Run, Value
from nextfire.domain.script import (
    FetchedScript,
    ScriptKey,
    ScriptSource,
    ScriptVersion,
    StoredScript,
    Upload,
)

T = TypeVar("T")


class Clock(Protocol):
    """The wall clock, given to what waits or works for a while."""

    def now(self) -> datetime:
        """The present instant, aware, in UTC."""

    def sleep(self, duration: timedelta) -> None:
        """Return when *duration* has passed."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored item of a listing that does not decode: the sort key it lies under, and why."""

    identity: str
    problem: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Some of a listing. `cursor` is opaque; None on the last page. `unreadable`: what lies between
    the items and does not decode.
    """

    items: Sequence[T]
    cursor: str | None
    unreadable: Sequence[Unreadable] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """Some of all jobs. `last`: go on after this one; None at the end. `unreadable`: what does not
    decode, and why.
    """

    jobs: Sequence[Job]
    unreadable: Sequence[tuple[JobKey, str]]
    last: JobKey | None


class JobStore(Protocol):
    """Holds jobs; writes a job and its first due entry together or not at all."""

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        *,
        former: Job | None = None,
        most: int | None = None,
    ) -> Job | None:
        """Store *job* and *first*, if the id is free, or still that of *former*, which is
        CANCELLED. What was stored with the same `uid` before stays as it is, cancelled or not. A
        *job* that is `counted` is counted, if there are less than *most*.

        Returns:
            None if stored; else the job that has the id, CANCELLED or not: of the same `uid` if it
            was stored before.

        Raises:
            QuotaUsedUpError: Its tenant has *most* jobs that are counted, or more.
        """

    def update(
        self,
        job: Job,
        entry: DueEntry | None,
        now: datetime,
        *,
        counts: int = 0,
        most: int | None = None,
    ) -> bool:
        """Replace revision `job.revision - 1` by *job*, and store *entry*. False if another change
        came first. *counts*: 1 if *job* is counted from now on (where *most* is given, if there are
        less), -1 if it is so no more.

        Raises:
            QuotaUsedUpError: Its tenant has *most* jobs that are counted, or more.
        """

    def get(self, key: JobKey) -> Job | None:
        """The job, by a consistent read; None if there is none.

        Raises:
            UndecodableError: The stored item does not read as a job.
        """

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        """The jobs among *keys* without their payloads, by *consistent* reads or by eventually
        consistent ones; one that does not decode maps to its error.

        Absent: no such job, or it could not be read this time; `get` tells.
        """

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        """*tenant*'s jobs by id, cancelled ones included. At most *limit* (≥ 1) a page.

        Raises:
            InvalidInputError: *cursor* is none of ours.
        """

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        """The ids of *tenant*'s jobs, in order, those of cancelled ones and of what does not decode
        included: up to *limit* (≥ 1) that come after *after*. Fewer: there are no more.
        """

    def complete(self, job: Job, now: datetime) -> bool:
        """Make an ACTIVE job COMPLETED, if it is still of this `uid` and `schedule_version`. It is
        not counted any more.
        """

    def counted(self, tenant: str) -> int:
        """How many of *tenant*'s jobs are counted, by a consistent read.

        Raises:
            UndecodableError: What is stored is no count.
        """

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        """Up to *limit* (≥ 1) of all tenants' jobs, by consistent reads, in an order of the store's
        own. Goes on after the job *after*, whether it is there still or not.
        """


REQUESTS_KEPT = timedelta(hours=24)
"""For how long an idempotency key stands for its first request."""


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """A request as it first came, at `at`. `answer`: None if it had none, or one too large.
    `refused`: it, or some of it, was told to have no effect.
    """

    fingerprint: str
    at: datetime
    answer: str | None
    refused: bool = False


class RequestStore(Protocol):
    """Holds requests that bear an idempotency key, for `REQUESTS_KEPT`."""

    def begin(self, tenant: str, key: str, fingerprint: str, now: datetime) -> KeptRequest | None:
        """Keep that *tenant*'s request *key* came at *now*, if none is kept.

        Returns:
            None if kept; else the one that is.

        Raises:
            UndecodableError: What is kept does not decode.
        """

    def finish(self, tenant: str, key: str, began_at: datetime, answer: str) -> str:
        """Keep *answer* with the request that began at *began_at*, if it has none.

        Returns:
            The answer that it has: *answer*, or one that was first.
        """

    def refuse(self, tenant: str, key: str, began_at: datetime) -> None:
        """Keep that the request that began at *began_at* was refused, if it is kept still."""


class BucketStore(Protocol):
    """Holds token buckets that all processes share, by name."""

    def take(self, name: str, limit: RequestLimit, wanted: int, now: datetime) -> Taken:
        """Take up to *wanted* (≥ 1) tokens, as `request_limits.take` would of the bucket as it is;
        of concurrent callers no two get the same token. At least one is taken if there is one.

        Raises:
            UnavailableError: The store did not answer. Tokens may have been taken.
        """


class DueStore(Protocol):
    """Holds due entries, by minute and shard."""

    def read(
        self,
        minute: datetime,
        shard: int,
        *,
        before: datetime | None,
        consistent: bool,
        since: datetime | None = None,
        after: Slot | None = None,
        page: int | None = None,
    ) -> Iterator[StoredEntry | BrokenEntry]:
        """The entries of one bucket, by due instant, page by page as they are asked for.

        Args:
            minute: The bucket's minute.
            shard: The bucket's shard.
            before: Leave out what is due at or after this; None reads all there is, keys that are
                no instants included.
            consistent: See every write that was acknowledged before the call.
            since: Leave out what is due before this; asked for with *before* only.
            after: Begin behind this slot of the bucket, whether something lies there or not; asked
                for with *before* and without *since* only.
            page: How many are read at a time, at most; None: as many as the store gives.
        """

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        """Those of *slots* in which something lies, by consistent reads."""

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        """Store *entries*, each in the bucket for *now*. Returns those that were stored."""

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        """Store *entries* anew where they lie, as `held`, as far as it goes."""

    def delete(self, slots: Collection[Slot]) -> None:
        """Delete what lies in *slots*, as far as it goes: what stays is read, and decided,
        again.
        """

    def keep(self, entry: BrokenEntry, now: datetime) -> None:
        """Keep a copy of what could not be decoded, with its error, where no watcher reads."""

    def quarantine(self, entry: BrokenEntry, now: datetime) -> None:
        """`keep` it; then delete it from its slot, unless another entry lies there by now."""


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may dispatch for a watcher group.

    `epoch` grows with every change of holder. `beat` counts renewals: a standby that sees it stand
    still for a lease's life takes over, so the holder's clock and the standby's need not agree.
    """

    holder: str
    epoch: int
    beat: int
    released: bool = False


class ControlStore(Protocol):
    """Holds the watchers' leases and cursors, how far the audit is, and how many runs of those
    tenants that have a quota were let go.
    """

    def lease(self, group: int) -> Lease | None:
        """The group's lease as it stands, or stood a moment ago; None if there never was one. One
        that does not decode is a lease of nobody, which stands still.
        """

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        """Make *to* the group's lease, if *was* is still the one that is stored.

        Of any number of concurrent callers with one *was*, one succeeds.
        """

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        """Set the cursor of each shard below *shards* that has none to *minute*; one that does not
        decode, or lies an hour after *minute*, to a day before the earliest of *minute* and the
        others.
        """

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        """The cursors of *shards*, by consistent reads. Absent: it has none."""

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        """Set a cursor, unless a holder of a later epoch has set it."""

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        """Take up to *wanted* (≥ 1) of the *most* runs that *tenant* may have in *minute*.

        Of all that is taken in a minute, by any number of concurrent callers, the sum is at most
        *most*; where an answer was lost, what is made use of is less. A caller whose clock is up to
        a minute ahead has others count in its minute; what does not decode counts as nothing taken.

        Returns:
            How many were taken; 0: there is none left.
        """

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        """How many *tenant* has taken in *minute*, by a consistent read: what `take_runs` would
        count from. What does not decode counts as none.
        """

    def audit(self) -> Audit | None:
        """The latest audit as it stands, by a consistent read; None if there never was one."""

    def replace_audit(self, was: Audit | None, to: Audit) -> bool:
        """Make *to* the latest audit, if *was* is still what is stored.

        Of any number of concurrent callers with one *was*, one succeeds.
        """


class RunQueue(Protocol):
    """The pools' FIFO queues, as their sender sees them."""

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        """Send each message to its pool's queue, deduplicated by run, dispatch and message group.

        Returns:
            The indexes of those that were accepted. A pool that is not there accepts none.
        """

    def backlog(self, pool: str) -> int:
        """About how many messages *pool*'s queue holds, in flight or not; 0 if it is not there."""


class Delivery(Protocol):
    """One received message, as its executor sees it."""

    body: str

    @property
    def token(self) -> str:
        """Names the claim that is made for this message. Each receive makes a new one."""

    def hide(self, duration: timedelta) -> None:
        """Keep it from others for *duration* (0 … 12 h) from now. Does nothing if it is no longer
        ours.
        """


class FifoDelivery(Delivery, Protocol):
    """One received message of a FIFO queue. `message_id` names it in the queue; the messages of a
    `group` are delivered in order.
    """

    message_id: str
    group: str


D = TypeVar("D", bound=FifoDelivery)
D_contra = TypeVar("D_contra", bound=FifoDelivery, contravariant=True)


class Inbox(Protocol[D]):
    """Receives and deletes the messages of one pool's queue."""

    def receive(self, most: int, *, wait: timedelta, hidden_for: timedelta) -> Sequence[D]:
        """Up to *most* (1 … 10) messages, hidden from others for *hidden_for*. Waits up to *wait*
        (0 … 20 s) for the first one.
        """

    def acknowledge(self, deliveries: Sequence[D], /) -> Sequence[str]:
        """Delete *deliveries*, at most 10. What is not deleted comes again.

        Returns:
            The messages that were refused, each with the reason.
        """


class Journal(Protocol[D_contra]):
    """Lists the messages that a worker holds, where the list outlives the worker's process: see
    `ReturnHeld`. Any thread may call it. It does not fail: a message that it has no room for is
    not listed.
    """

    def hold(self, deliveries: Sequence[D_contra], /) -> None:
        """List *deliveries*, which were received."""

    def release(self, deliveries: Sequence[D_contra], /) -> None:
        """Remove *deliveries*: they are deleted, or left to others."""


class ServiceClock(Protocol):
    """Compares this machine's clock with that of the service that holds the queue."""

    def deviation(self) -> timedelta:
        """Lower bound of the deviation. Positive: this machine's clock is ahead; negative: behind;
        0: it may be right.

        Raises:
            Exception: The service did not answer, or refused.
        """


class TaskProtection(Protocol):
    """Keeps the host from ending this process while it works."""

    def keep(self, *, working: bool) -> None:
        """Protect the process while it is *working*, and only then. Called often, by one thread."""


class Notices(Protocol):
    """Where a loop reports trouble that does not end it. May be called by several threads."""

    def warn(self, what: str, why: Exception | str) -> None:
        """Report trouble that passes by itself."""

    def fail(self, what: str, why: Exception | str) -> None:
        """Report trouble that a person has to look at."""


class DeadLetters(Protocol):
    """The pool's dead-letter queue."""

    def put(self, body: str, failure: str, *, dedup: str) -> None:
        """Keep *body* with *failure*; at most one copy per *dedup* within five minutes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """`run` is the record now in force; `taken` says whether this claim took it."""

    run: Run
    taken: bool


class Written(Enum):
    """What came of a write that depends on a job and on a run."""

    DONE = "DONE"
    CHANGED = "CHANGED"  # the job was changed meanwhile
    REFUSED = "REFUSED"  # by the record of the run, or for want of one


class RunStore(Protocol):
    """Holds runs and says who may work on them."""

    def claim(
        self,
        message: RunMessage,
        *,
        token: str,
        worker: str,
        pool: str,
        job_revision: int,
        now: datetime,
        lease_until: datetime,
    ) -> Claim:
        """Give *worker* the run until *lease_until*, if it is free.

        Free: absent, or PENDING, not of a later dispatch, past its `not_before`. Of any number of
        concurrent callers exactly one gets it. A repetition with the same *token* finds what it
        took.
        """

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        """Replace *was* by *to*, if *was* is RUNNING under its fence still; and, where *to* is
        PENDING, RUNNING (the next attempt) or DEAD, if no cancel was requested; and, where *was* is
        another's whose lease has *lapsed*, if that has not been extended meanwhile. `taken` says
        whether it was.

        `cancel_requested` is not written, nor is `checkpoint`. A repetition with the same *to*
        finds what it wrote.
        """

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        """Make the run CANCELLED, if it is absent or PENDING. A record keeps its dispatch, of
        whichever *message* is: one of before may come again. Returns the record now in force.
        """

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        """Set the end of the lease: later, for the worker that holds it; in the past, for a worker
        that is known to be dead. Returns the record as it is now; None if the lease was lost.
        """

    def peek(self, key: RunKey) -> Run | None:
        """The run, by an eventually consistent read: perhaps as it was a moment ago.

        Raises:
            UndecodableError: The stored item does not read as a run.
        """

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        """Keep *checkpoint* with the run. Returns the record as it is now; None if the lease was
        lost.
        """

    def mark_death_published(self, run: Run) -> None:
        """Have it on record that the death of the DEAD *run* has been told, unless it has been
        redriven meanwhile.
        """

    def redrive(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        """Replace the DEAD *run* by `run.redriven(…)`, given here, and store the due entry of its
        dispatch: both or none. `taken`: it was DEAD and of the dispatch before. A repetition finds
        what it wrote.
        """

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        """*tenant*'s DEAD runs that died from *first* to *last* (both included; they may be others
        than *cursor* was of), the latest death first, by eventually consistent reads. At most
        *limit* (≥ 1) a page.

        Raises:
            InvalidInputError: *cursor* is none of ours.
        """

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        """Store the PENDING *run* that somebody asked for, and the due entry of its dispatch, if it
        has no record: both or none. A repetition, of one `request`, finds what it wrote.
        """

    def skip(self, run: Run) -> Run:
        """Store the SKIPPED record *run*, if there is none; of a run that was asked for, in place
        of the PENDING record that nobody has taken. Returns the record now in force.
        """

    def skip_next(self, run: Run, job: Job) -> Written:
        """Store the SKIPPED record *run*, if there is none, and replace revision `job.revision - 1`
        by *job*: both or neither.
        """

    def unskip(self, run: RunKey, job: Job) -> Written:
        """Delete the record of *run*, if somebody asked to skip it, and replace revision
        `job.revision - 1` by *job*: both or neither.
        """

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        """Make *run* CANCELLED if it is PENDING; if it is RUNNING, have its worker asked to end it.

        Returns:
            The record now in force.
        """

    def between(
        self,
        job: JobKey,
        first: str,
        last: str,
        *,
        newest_first: bool = False,
        page: int = 100,
        lenient: bool = False,
    ) -> Iterator[Run]:
        """The job's runs whose ids lie from *first* to *last*, both included, by consistent reads,
        page by page as they are asked for. *lenient*: one that does not decode is a DEAD run of its
        key, which is all that is known of it.

        Raises:
            UndecodableError: A stored item does not read as a run.
        """

    def get(self, key: RunKey) -> Run | None:
        """The run, by a consistent read.

        Raises:
            UndecodableError: The stored item does not read as a run.
        """

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        """A job's runs, the latest scheduled first, by eventually consistent reads; with *first*
        and *before*, given together, those scheduled from *first* on and before *before*; they may
        be others than *cursor* was of. One read: at most *limit* (≥ 1) a page, and perhaps fewer
        though others follow.

        Raises:
            InvalidInputError: *cursor* is none of ours.
        """


class ScriptStore(Protocol):
    """Holds the scripts that users uploaded."""

    def fetch(self, source: ScriptSource) -> FetchedScript:
        """The script at *source*. A pinned one is exactly the bytes with that digest, whatever was
        uploaded since, as long as the version that holds them exists.

        Raises:
            NotFoundError: There is none.
            InvalidInputError: The executor may not read there; or no version has the digest.
        """


class ScriptShelf(Protocol):
    """Holds scripts as those see them who upload them: tenant by tenant, with their versions."""

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
        """Where *size* bytes of that digest, and nothing else, may be PUT as the script *key* until
        *now* + *life*. *signature*: stored with the object, in the same request.
        """

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        """*tenant*'s scripts, or those of one pool, by pool and name. At most *limit* (≥ 1) a page,
        and perhaps fewer though others follow: what no handler can name lies between.

        Raises:
            InvalidInputError: *cursor* is none of ours.
        """

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        """The versions of the script *key*, the latest first. At most *limit* (≥ 1) a page.

        Raises:
            InvalidInputError: *cursor* is none of ours.
        """


class RunFiles(Protocol):
    """Holds what is too large for a run's record: logs, results, checkpoints."""

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        """Store *data* as the file *name* of *folder*; replaces an earlier one."""

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        """The file *name* of *folder*; None if it is absent."""


class Events(Protocol):
    """The stack's event bus."""

    def put(self, event: Event) -> None:
        """Have *event* told to whoever listens."""


class KeyStore(Protocol):
    """Holds API keys: their hashes, never their secrets."""

    def create(self, key: ApiKey) -> bool:
        """Store *key*, if its tenant has none of its id. False: it has one."""

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        """The key, by a consistent read; None if there is none.

        Raises:
            UndecodableError: The stored item does not read as a key.
        """

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """*tenant*'s keys by id, by consistent reads, those that are good no more included. At most
        *limit* (≥ 1) a page.

        Raises:
            InvalidInputError: *cursor* is none of ours.
        """

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        """Make the key good for nothing from *now* on; one that was revoked before stays as it is.

        Returns:
            The key as it is now; None if there is none.
        """

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        """Have the key expire at *at*; one that expires before that stays as it is.

        Returns:
            The key as it is now; None if there is none.
        """

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        """Have it on record that the key was last used on *day*, unless a day as late is, or the
        key is gone.
        """


class Secrets(Protocol):
    """What jobs refer to and do not hold: the secrets and parameters of one pool."""

    def resolve(self, tenant: str, reference: SecretReference | ParameterReference) -> str:
        """The value of *tenant*'s secret or parameter, as it was at most a minute ago.

        Raises:
            NotFoundError: There is none.
            InvalidInputError: The executor may not read it, or it has no such key.
        """


class JobRole(Protocol):
    """The role that a pool's scripts act in."""

    def lent(self, job: JobKey, masker: Masker) -> AbstractContextManager[Mapping[str, str]]:
        """Within: the environment by which a script of *job* finds the role's credentials, renewed
        for as long as it runs. Afterwards nobody gets any there.

        The token and all credentials are added to *masker* before the script can get them.

        Raises:
            InvalidInputError: The executor may not act in that role.
        """


class Verdict(Enum):
    """What a script's supervisor says each time the runner asks."""

    GO_ON = "GO_ON"
    CANCEL = "CANCEL"
    HAND_BACK = "HAND_BACK"
    LEASE_LOST = "LEASE_LOST"


class Supervisor(Protocol):
    """Whom a runner reports to while it runs a script; called in the thread that called `run`.

    What it raises ends the script, and is raised by `run`.
    """

    def ask(self) -> Verdict:
        """Whether the script may go on. Asked several times a second."""

    def output(self, stream: Stream, data: bytes) -> None:
        """The script printed *data*: a piece of any length, in order within its stream."""

    def checkpoint(self) -> bytes | None:
        """The JSON of what was saved last, by this attempt or one before it; None: nothing was."""

    def save(self, checkpoint: bytes) -> str | None:
        """Keep the JSON *checkpoint*. Returns None when it is kept, else why it is not."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A script to run.

    `name`: its file's name, ending in ``.py`` or ``.zip``. `payload`: JSON, on standard input.
    `environment`: what it finds in its environment beside what its runner gives to each.
    `timeout`: from when the script itself starts, or its archive is unpacked. `tenant`: whose
    packages it may use. `masker`: masks the secrets among `environment`.
    """

    name: str
    source: bytes
    payload: str
    timeout: timedelta
    tenant: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    masker: Masker = field(default_factory=Masker, compare=False)


@dataclass(frozen=True, slots=True)
class ScriptExit:
    """How a script ended. `exit_code` is negative for a signal; None if it never started.

    `timed_out`, or a `stopped` other than GO_ON, say that the runner ended it. `result`: the JSON
    of what it gave as its result last. `error`: why it did not start; `permanent`: and would not,
    if it were tried again.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    stopped: Verdict = Verdict.GO_ON
    result: bytes | None = None
    error: str | None = None
    permanent: bool = False


class ScriptRunner(Protocol):
    """Runs a script in a child process."""

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        """Run *call* until it exits, its timeout passes, or *supervisor* ends it.

        When it returns, the script and every process that it started have ended and its folder is
        gone, or going if that takes long. `ScriptExit.stdout` and `stderr` are cut beyond
        the runner's cap, with a notice; *supervisor* is given all of it.

        The output, for *supervisor* too, and the result are masked by `call.masker`. Checkpoints
        are not: the next attempt reads them back.
        """


class AuditLog(Protocol):
    """Stores the audit chain; see `nextfire.domain.chain`."""

    def last(self) -> Batch | None:
        """The newest batch, or an older one that was the newest before; None: the log is empty.

        Raises:
            UnavailableError: The store did not answer.
            BrokenChainError: The batch does not decode.
        """

    def ids_since(self, last: Batch | None, since: datetime) -> Collection[str]:
        """The ids of the events in *last* and the batches before it that were written at *since* or
        later. Raises as `last` does.
        """

    def append(self, batch: Batch) -> bool:
        """Store *batch* if none of its number is there; of several writers one succeeds.

        Returns:
            Whether it is stored. If not, `last` reads the newest batch again.

        Raises:
            UnavailableError: The store did not answer. The batch may be stored.
        """
